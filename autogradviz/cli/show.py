"""``autogradviz show``: print a summary of a trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from autogradviz.analysis.formatting import format_bytes, format_duration, plural
from autogradviz.analysis.idle_time import recomputation_times
from autogradviz.analysis.phase_times import measure_phases
from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.distributed_runs import Run
from autogradviz.render.terminal_text import (
    engine_text,
    ops_text,
    print_out,
    saved_rows,
    strip_controls,
)
from autogradviz.scene.compiled.columns_by_line_or_block import saved_texts
from autogradviz.scene.label_text_and_width import block_prefix, merge_numbered_names
from autogradviz.scene.summary_and_steps import summarize
from autogradviz.support.import_rich_keep_random_state import Group, Padding, Table, Text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType

    from autogradviz.analysis import Analysis, CompiledRegion
    from autogradviz.trace import Trace


# --- compiled regions in the summary that ``autogradviz show`` prints -----------------------------


MOST_REGIONS: Final = 8
"""Regions listed separately; the rest share one line."""


_ORIGINS: Final = {
    "objects": "",
    "cache": "from the cache",
    "found": "compiled before",
    "log": "from a log",
}


def compiled_summary(analysis: Analysis) -> str:
    """Return one line about compiled regions, graph breaks and recompiles; "" without any."""
    regions = analysis.compiled_regions
    if not (regions or analysis.graph_breaks):
        return ""
    parts = [plural(len(regions), "region")]
    backends = Counter(region.backend or "?" for region in regions)
    parts[0] += f" ({', '.join(backends)})" if backends else ""
    if analysis.graph_breaks:
        parts.append(plural(len(analysis.graph_breaks), "graph break"))
    if analysis.recompiles:
        parts.append(plural(len(analysis.recompiles), "recompile"))
    return ", ".join(parts)


def compiled_table(analysis: Analysis) -> Table:
    """Return the compiled regions that save the most, with what they compute again."""
    table = Table.grid(padding=(0, 2))
    for side in ("left", "right", "left", "left", "left"):
        table.add_column(justify=side)
    regions = sorted(analysis.compiled_regions, key=lambda region: -region.saved_nbytes)
    for region in regions[:MOST_REGIONS]:
        table.add_row(
            Text(region.name),
            " ".join(saved_texts(region)),
            f"in {plural(len(region.saved), 'slot')}",
            _recomputed(region),
            Text(_origin(region), style="dim"),
        )
    rest = regions[MOST_REGIONS:]
    if rest:
        total = sum(region.saved_nbytes for region in rest)
        table.add_row(f"{len(rest):,} others", format_bytes(total), "", "", "")
    return table


def _recomputed(region: CompiledRegion) -> str:
    if not region.differentiable:
        return "no backward"
    causes = Counter(op.cause for op in region.recomputed)
    counts = ", ".join(f"{count} by {cause}" for cause, count in causes.most_common())
    return f"recomputes {counts}" if counts else "recomputes nothing"


def _origin(region: CompiledRegion) -> str:
    notes = [_ORIGINS[region.source]]
    if region.planned:
        notes.append("as planned: inductor fuses ops")
    if region.missing:
        notes.append(f"unknown: {', '.join(region.missing)}")
    return "; ".join(note for note in notes if note)


# --- ``autogradviz show``: print a summary of a trace ---------------------------------------------


MOST_MODULES: Final = 8
"""Modules listed separately; the rest share one line."""

_BAR_WIDTH: Final = 24  # characters of the longest bar
_EIGHTHS: Final = "▏▎▍▌▋▊▉█"


class _ModuleMemory(NamedTuple):
    """Bytes that modules keep for backward at the peak."""

    name: str  # "blocks.*" for several blocks
    blocks: int
    nbytes: int
    note: str  # "4 blocks, 254 kB to 521 kB each", "" of one


def _show(found: Trace | Run, options: argparse.Namespace) -> None:  # noqa: ARG001
    print_out(found if isinstance(found, Run) else overview(found))


def overview(trace: Trace) -> RenderableType:
    """Return steps, graph, time, memory by module, cost of recomputation, and findings."""
    analysis = trace.analysis
    s = summarize(analysis, trace.title)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("steps", _steps(analysis))
    facts.add_row("graph", f"{plural(s.nodes, 'node')}, {plural(s.edges, 'edge')}")
    facts.add_row("ops", ops_text(analysis))
    for label, text in _times(analysis):
        facts.add_row(label, text)
    compiled = compiled_summary(analysis)
    if compiled:
        facts.add_row("compiled", compiled)
    engine = engine_text(analysis)
    if engine:
        facts.add_row("engine", Text(engine))
    for label, text in saved_rows(analysis):
        facts.add_row(label, text)
    if s.error_type:
        first = s.error_message.splitlines()[0] if s.error_message else ""
        facts.add_row("raised", Text(f"{s.error_type}: {first}", style="red"))
    for notice in s.notices:
        facts.add_row("note", Text(notice, style="yellow"))
    torch = f"  torch {s.torch_version}" if s.torch_version else ""
    parts: list[RenderableType] = [Text.assemble((s.title, "bold"), torch), facts]
    parts += _section("held at peak, by module", _memory_table(_memory_at_peak(analysis)))
    parts += _section("recomputed, by module", _recomputation_table(analysis))
    parts += _section("saved by compiled regions", compiled_table(analysis))
    parts += _section("findings", _finding_table(trace))
    return strip_controls(Group(*parts))


def _steps(analysis: Analysis) -> str:
    steps = [step.number for step in analysis.steps.ended]
    depths = [span.depth for span in analysis.timeline.spans if span.kind == "backward"]
    backwards = plural(depths.count(0), "backward")
    if any(depths):
        backwards += f" ({len(depths) - depths.count(0):,} more inside)"
    if not steps:
        return f"none ended; {backwards}"
    numbers = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    count = f"{len(steps):,} ({numbers})"
    if len(analysis.steps) > len(steps):
        count = f"{len(steps):,} ended ({numbers}) and one that did not end"
    return f"{count}, {backwards}"


def _section(title: str, table: Table) -> list[RenderableType]:
    inset = Padding(table, (0, 0, 0, 2))
    return [Text(), Text(title, style="bold"), inset] if table.row_count else []


# --- time ---------------------------------------------------------------------------------------


def _times(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield rows for the time of forward, backward and optimizer, and of recomputation."""
    times = measure_phases(analysis)
    rows = [
        f"{phase} {format_duration(duration)}"
        for phase, duration in (
            ("forward", times.forward_ns),
            ("backward", times.backward_ns),
            ("optimizer", times.optimizer_ns),
            ("compiling", times.compile_ns),
        )
        if duration
    ]
    if rows and times.recorder_ns:
        ended = analysis.steps.ended
        whole = " in the whole run" if ended and ended[0].number else ""
        rows.append(f"without {format_duration(times.recorder_ns)} of the recorder{whole}")
    if rows:
        yield "time", ", ".join(rows)
    if analysis.regions:
        count = sum(len(region.recomputations) for region in analysis.regions)
        share = (
            f", {times.recomputation_ns / times.backward_ns:.0%} of backward"
            if times.backward_ns
            else ""
        )
        yield (
            "checkpoint",
            f"{plural(len(analysis.regions), 'region')}, {plural(count, 'recomputation')} in "
            f"{format_duration(times.recomputation_ns)}{share}",
        )


# --- memory -------------------------------------------------------------------------------------


def _memory_at_peak(analysis: Analysis) -> list[_ModuleMemory]:
    """Return the bytes that each block keeps at the peak, largest first."""
    kept: dict[str, int] = defaultdict(int)
    for storage in analysis.saved_memory.storages:
        if storage.at_peak:
            kept[block_prefix(storage.module) or "no module"] += storage.nbytes
    names = merge_numbered_names(kept)
    blocks: dict[str, list[int]] = defaultdict(list)
    for block, nbytes in kept.items():
        blocks[names[block]].append(nbytes)
    parts = [_ModuleMemory(name, len(own), sum(own), _each(own)) for name, own in blocks.items()]
    return sorted(parts, key=lambda part: -part.nbytes)


def _memory_table(parts: list[_ModuleMemory]) -> Table:
    table = _table("right", "left", "left", "left")
    most = max((part.nbytes for part in parts), default=0)
    listed, rest = parts[:MOST_MODULES], parts[MOST_MODULES:]
    if rest:
        others = sum(part.blocks for part in rest)
        listed = [
            *listed,
            _ModuleMemory(f"{others:,} others", 1, sum(part.nbytes for part in rest), ""),
        ]
    for part in listed:
        bar = Text(_bar(min(part.nbytes / max(most, 1), 1)), style="green")
        table.add_row(format_bytes(part.nbytes), bar, Text(part.name), Text(part.note, style="dim"))
    return table


def _each(blocks: list[int]) -> str:
    """Return the number of blocks and what each keeps, "" for one."""
    if len(blocks) == 1:
        return ""
    sizes = dict.fromkeys(format_bytes(nbytes) for nbytes in (min(blocks), max(blocks)))
    return f"{len(blocks)} blocks, {' to '.join(sizes)} each"


def _bar(part: float) -> str:
    eighths = max(round(part * _BAR_WIDTH * 8), 1)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


# --- recomputation and findings -----------------------------------------------------------------


def _recomputation_table(analysis: Analysis) -> Table:
    """Return number and total time of the recomputations of each checkpointed module."""
    table = _table("left", "right", "right")
    counts, times = Counter[str](), Counter[str]()
    by_region = recomputation_times(analysis)
    names = merge_numbered_names(
        region.module or region.function or "?" for region in analysis.regions
    )
    for region in analysis.regions:
        name = names[region.module or region.function or "?"]
        counts[name] += len(region.recomputations)
        times[name] += by_region[region.region_id]
    ranked = sorted(times, key=lambda name: -times[name])
    for name in ranked[:MOST_MODULES]:
        table.add_row(Text(name), _format_count(counts[name]), format_duration(times[name]))
    rest = ranked[MOST_MODULES:]
    if rest:
        count, time = (sum(each[name] for name in rest) for each in (counts, times))
        table.add_row(f"{len(rest):,} others", _format_count(count), format_duration(time))
    return table


def _format_count(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _finding_table(trace: Trace) -> Table:
    table = _table("left", "left", "left")
    for finding in trace.diagnose():
        style = "bold red" if finding.confidence != "hint" else "yellow"
        culprit = finding.culprit
        place = f"{PurePath(culprit.filename).name}:{culprit.lineno}" if culprit else ""
        table.add_row(
            Text(finding.confidence, style="dim"), Text(finding.title, style=style), Text(place)
        )
    return table


def _table(*sides: Literal["left", "right"]) -> Table:
    table = Table.grid(padding=(0, 2))
    for side in sides:
        table.add_column(justify=side)
    return table


COMMAND: Final = Command(
    "show",
    _show,
    reads="trace or run",
)
