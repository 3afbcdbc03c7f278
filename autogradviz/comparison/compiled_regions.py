"""Differences between the compiled regions of two recordings, or to a recording of eager code."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.analysis.module_names import uncompiled_name
from autogradviz.comparison.result import Difference
from autogradviz.compiled_graphs.read_graph_text import is_view
from autogradviz.events import NodeStarted
from autogradviz.scene.label_text_and_width import merge_numbered_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import SourceLocation

MOST: Final = 12
"""Lines that are listed separately: those that differ most."""


def only_one_is_compiled(before: Analysis, after: Analysis) -> bool:
    """Return whether one of two recordings has compiled regions, and the other has none."""
    return bool(before.compiled_regions) != bool(after.compiled_regions)


def compiled_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield differences in compiled regions, saved bytes, recomputed ops, breaks and guards."""
    old, new = _facts(before), _facts(after)
    for what in dict.fromkeys((*old, *new)):
        if old[what] != new[what]:
            yield Difference(
                aspect="compiled", what=what, before=f"{old[what]:,}", after=f"{new[what]:,}"
            )
    if before.compiled_regions or after.compiled_regions:
        yield from _by_line("saved at", _saved(before), _saved(after), format_bytes)
        yield from _by_line(
            "recomputed at", _recomputed(before), _recomputed(after), lambda n: plural(n, "op")
        )


def _facts(analysis: Analysis) -> Counter[str]:
    facts: Counter[str] = Counter()
    for region in analysis.compiled_regions:
        facts[f"regions of {region.backend or 'a backend'}"] += 1
    for each in analysis.graph_breaks:
        facts[f"graph breaks at {each.location or '?'}"] += 1
    for recompile in analysis.recompiles:
        facts[f"recompiles of {recompile.function or '?'}"] += 1
    return facts


def _saved(analysis: Analysis) -> Counter[tuple[str, str]]:
    """Return the bytes that the forward saved, by line and module, "" for the model itself."""
    sums: Counter[tuple[str, str]] = Counter()
    for each in analysis.saved_memory.storages:
        if not each.recomputed:
            line = f"{each.filename}:{each.lineno}" if each.lineno else ""
            module = "" if each.module == analysis.module_names.title else each.module
            sums[line, uncompiled_name(module)] += each.nbytes
    return sums


def _recomputed(analysis: Analysis) -> Counter[tuple[str, str]]:
    """Return the number of ops that were computed again for a backward, by line and module.

    Views are left out: they compute nothing, and checkpoint detaches what it saves.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for ran in analysis.ops:
        if ran.phase == "recompute" and not is_view(ran.overload):
            counts[_line(ran.location), uncompiled_name(ran.module)] += 1
    started = {event.node_id for event in analysis.log.of(NodeStarted)}
    nodes = analysis.graph.nodes
    for region in analysis.compiled_regions:
        for run in region.runs:
            if run.node_id not in started:
                continue
            outer = nodes[run.node_id].module if run.node_id in nodes else ""
            for op in region.recomputed:
                if not is_view(op.target):
                    module = analysis.module_names.find_in_dynamo(op.module, outer)
                    counts[_line(op.location), module] += 1
    return counts


def _line(location: SourceLocation | None) -> str:
    return f"{location.place}:{location.lineno}" if location is not None else ""


def _by_line(
    verb: str,
    old: Counter[tuple[str, str]],
    new: Counter[tuple[str, str]],
    show: Callable[[int], str],
) -> Iterator[Difference]:
    """Yield the sum and the lines that differ most; numbered modules are one line."""
    pattern = merge_numbered_names(module for _, module in (*old, *new))
    sums: list[Counter[str]] = []
    for each in (old, new):
        merged: Counter[str] = Counter()
        for (line, module), amount in each.items():
            place = PurePath(line).name if line else "unknown lines"
            merged[f"{place} in {pattern[module]}" if module else place] += amount
        sums.append(merged)
    first, second = sums
    places = sorted(
        (place for place in dict.fromkeys((*first, *second)) if first[place] != second[place]),
        key=lambda place: -abs(first[place] - second[place]),
    )
    if not places:
        return
    noun = verb.partition(" ")[0]
    totals = [show(sum(each.values())) for each in sums]
    yield Difference(aspect="compiled", what=f"{noun}, in all", before=totals[0], after=totals[1])
    for place in places[:MOST]:
        yield Difference(
            aspect="compiled",
            what=f"{verb} {place}",
            before=show(first[place]),
            after=show(second[place]),
        )
    rest = places[MOST:]
    if rest:
        amounts = [show(sum(each[place] for place in rest)) for each in sums]
        yield Difference(
            aspect="compiled",
            what=f"{verb} {plural(len(rest), 'other line')}",
            before=amounts[0],
            after=amounts[1],
        )
