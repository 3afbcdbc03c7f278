"""Two recordings aligned by module and source line: nodes, saved bytes, times and norms of both.

A line is identified by its module and its text, so that lines that moved are still the same line;
an edited line by its module and the nodes that it created.
Bytes and times are those of the other views: each storage counts where it was saved first, and
times are the self times of the source view, in the steps that are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from autogradviz.analysis.flame_graph import split_module
from autogradviz.analysis.formatting import short_path, source_line
from autogradviz.analysis.phase_times import (
    compared_steps,
    measure_phases,
    ranges_over_steps,
    times_of_steps,
)
from autogradviz.comparison.rounding_of_gradients import rounding_between
from autogradviz.scene.schema import SceneComparedText, SceneComparisonRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.comparison.result import Difference
    from autogradviz.comparison.rounding_of_gradients import Rounding
    from autogradviz.diagnose import Finding
    from autogradviz.scene import Scene

Item = TypeVar("Item")

_Frames = tuple[str, ...]
"""Names of the frames of a module: ("h.*", "attn"); empty for the root."""

ROOT: Final[_Frames] = ()
NO_LINE: Final = "no line"


@dataclass(slots=True)
class _Sums:
    """Sums of a module or a line in one recording."""

    nodes: Counter[str] = field(default_factory=Counter)
    drawn: int = 0  # of them in the graph: views and AccumulateGrad are parts of other nodes
    saved: int = 0
    recomputed: int = 0
    at_peak: int = 0
    time_ns: int = 0
    squares: float | None = None  # of gradient norms
    first_node: int = -1
    lineno: int = 0


@dataclass(slots=True)
class _Lines:
    """The sums of one recording by module and line. A module contains its submodules."""

    modules: dict[_Frames, _Sums] = field(default_factory=dict)
    lines: dict[_Frames, dict[str, _Sums]] = field(default_factory=dict)

    def at(self, frames: _Frames, text: str | None, lineno: int = 0) -> list[_Sums]:
        """Return the sums of a line and of all modules around it."""
        around = [
            self.modules.setdefault(frames[:depth], _Sums()) for depth in range(len(frames) + 1)
        ]
        if text is not None:
            line = self.lines.setdefault(frames, {}).setdefault(text, _Sums(lineno=lineno))
            around.append(line)
        return around


def compare_scenes(
    recordings: tuple[Analysis, Analysis],
    scenes: tuple[Scene, Scene],
    findings: tuple[Sequence[Finding], Sequence[Finding]],
    differences: Sequence[Difference],
) -> tuple[Scene, Scene]:
    """Return both scenes with the tables of the comparison. Each argument is before, after."""
    rounding = rounding_between(*recordings)
    rows = tuple(
        row
        for merge in (True, False)
        for row in _compare_rows(recordings, scenes, rounding, merge=merge)
    )
    compared = [compared_steps(each) or [0] for each in recordings]
    steps = tuple(map(len, compared))
    left_out = tuple(int(0 not in each) for each in compared)
    rows = tuple(
        replace(row, steps=steps, left_out=left_out)
        for row in (*rows, *_compare_phases(recordings))
    )
    texts = (*_compare_findings(*findings), *map(_text, differences))
    titles = [scene.summary.title for scene in scenes]
    before, after = (
        replace(
            scene,
            summary=replace(scene.summary, compared_with=other, is_before=is_before),
            comparison_rows=rows,
            compared_texts=texts,
        )
        for scene, other, is_before in zip(scenes, titles[::-1], (True, False), strict=True)
    )
    return before, after


def _compare_phases(recordings: tuple[Analysis, Analysis]) -> Iterator[SceneComparisonRow]:
    """Yield the time of each phase that either recording has, in the steps that are compared."""
    times = [measure_phases(each) for each in recordings]
    compared = [times_of_steps(each) for each in recordings]
    ranges = [ranges_over_steps(each) for each in recordings]
    none = (0, 0)
    for name in ("forward", "backward", "recomputation", "optimizer"):
        kind = "recompute" if name == "recomputation" else name
        pair = tuple(
            sum(step[kind] for step in own) if own else getattr(each, f"{name}_ns")
            for each, own in zip(times, compared, strict=True)
        )
        if any(pair):
            least, most = zip(*(each.get(kind, (0, 0)) for each in ranges), strict=True)
            yield SceneComparisonRow(
                kind="phase", merged=True, depth=0, label=name, module="", status="same",
                lines=none, nodes=none, other_nodes="", saved=none, recomputed=none, at_peak=none,
                time_ns=pair, norm_before=None, norm_after=None, first_nodes=(-1, -1),
                least_ns=least, most_ns=most,
            )  # fmt: skip


def _text(difference: Difference) -> SceneComparedText:
    return SceneComparedText(
        kind="difference",
        aspect=difference.aspect,
        what=difference.what,
        before=difference.before,
        after=difference.after,
    )


def _compare_findings(
    before: Sequence[Finding], after: Sequence[Finding]
) -> Iterator[SceneComparedText]:
    """Yield the findings of both recordings; equal ones once, with their numbers."""
    counts = [Counter((each.slug, each.title) for each in found) for found in (before, after)]
    for slug, title in dict.fromkeys((*counts[0], *counts[1])):
        first, second = (count[slug, title] for count in counts)
        aspect = "same" if first == second else "removed" if first > second else "added"
        yield SceneComparedText(
            kind="finding", aspect=aspect, what=title, before=str(first), after=str(second)
        )


def _read_lines(analysis: Analysis, scene: Scene, *, merge: bool) -> _Lines:
    lines = _Lines()
    _add_nodes(lines, analysis, {node.node_id: node.index for node in scene.nodes}, merge=merge)
    for storage in analysis.saved_memory.storages:
        frames = _frames(storage.module, analysis, merge=merge)
        for sums in lines.at(frames, _line(storage.location), storage.lineno):
            sums.recomputed += storage.nbytes * storage.recomputed
            sums.saved += storage.nbytes * (not storage.recomputed)
            sums.at_peak += storage.nbytes * storage.at_peak
    places = [(frame.filename, frame.lineno) for frame in scene.call_frames]
    texts = {(line.filename, line.lineno): line.text.strip() for line in scene.lines}
    compared = compared_steps(analysis) or [-1]
    for row in scene.call_times:
        if row.step in compared:
            filename, lineno = places[row.origin] if row.origin >= 0 else ("", 0)
            text = texts.get((filename, lineno)) or _place(filename, lineno)
            for sums in lines.at(_frames(row.module, analysis, merge=merge), text, lineno):
                sums.time_ns += row.ns
    return lines


def _frames(module: str, analysis: Analysis, *, merge: bool) -> _Frames:
    """Return the frames of a module; none for the model itself, whose lines a region may run."""
    title = analysis.module_names.title
    return () if module == title else tuple(split_module(module, merge=merge))


def _place(filename: str, lineno: int) -> str:
    """Return "gpt.py:31", or what stands for a line that is unknown."""
    return f"{short_path(filename).rpartition('/')[2]}:{lineno}" if lineno else NO_LINE


def _add_nodes(lines: _Lines, analysis: Analysis, indices: dict[int, int], *, merge: bool) -> None:
    """Add the nodes, and the norms of gradients to the modules that own the parameters."""
    for node in sorted(analysis.graph.nodes.values(), key=lambda node: node.order):
        leaf = node.parameter
        if leaf is None:
            frames = _frames(node.module, analysis, merge=merge)
            around = lines.at(frames, _line(node.location), source_line(node.location)[1])
        else:
            owner = leaf.name.rpartition(".")[0]
            around = lines.at(_frames(owner, analysis, merge=merge), None)
        for sums in around:
            sums.nodes[node.name] += 1
            sums.drawn += node.node_id in indices
            if leaf is not None and leaf.norm is not None:
                sums.squares = (sums.squares or 0.0) + leaf.norm**2
            if leaf is None and sums.first_node < 0:
                sums.first_node = indices.get(node.node_id, -1)


def _line(location: SourceLocation | None) -> str:
    """Return the text of a line; its place if the text is unknown."""
    filename, lineno, text = source_line(location)
    return text or _place(filename, lineno)


def _compare_rows(
    recordings: tuple[Analysis, Analysis],
    scenes: tuple[Scene, Scene],
    rounding: Rounding,
    *,
    merge: bool,
) -> Iterator[SceneComparisonRow]:
    before, after = (
        _read_lines(analysis, scene, merge=merge)
        for analysis, scene in zip(recordings, scenes, strict=True)
    )
    children: dict[_Frames, list[_Frames]] = {}
    for frames in _merge_orders([*before.modules], [*after.modules]):
        if frames:
            children.setdefault(frames[:-1], []).append(frames)
    steps = tuple(max(1, len(analysis.steps)) for analysis in recordings)
    waiting: list[_Frames] = [ROOT]
    while waiting:
        frames = waiting.pop()
        kind, label = ("module", frames[-1]) if frames else ("total", "whole recording")
        pair = before.modules.get(frames), after.modules.get(frames)
        yield _row(kind, frames, label, pair, steps, rounding, merge=merge)
        old, new = _pair_edited(before.lines.get(frames, {}), after.lines.get(frames, {}))
        for text in _merge_orders([*old], [*new]):
            pair = old.get(text), new.get(text)
            yield _row("line", frames, text, pair, steps, rounding, merge=merge)
        waiting += reversed(children.get(frames, []))


def _pair_edited(
    before: dict[str, _Sums], after: dict[str, _Sums]
) -> tuple[dict[str, _Sums], dict[str, _Sums]]:
    """Return the lines of a module, with an edited line under its new text.

    A line was edited if it is missing in the other recording, and a line that is new there created
    the same nodes.
    """
    new_texts = [text for text in after if text not in before]
    renamed: dict[str, str] = {}
    for text, sums in before.items():
        if text not in after and sums.nodes:
            match = next((new for new in new_texts if after[new].nodes == sums.nodes), None)
            if match is not None:
                new_texts.remove(match)
                renamed[text] = match
    return {renamed.get(text, text): sums for text, sums in before.items()}, after


def _row(
    kind: str,
    frames: _Frames,
    label: str,
    pair: tuple[_Sums | None, _Sums | None],
    steps: tuple[int, ...],
    rounding: Rounding,
    *,
    merge: bool,
) -> SceneComparisonRow:
    before, after = pair
    first, second = before or _Sums(), after or _Sums()
    norms = [None if each.squares is None else math.sqrt(each.squares) for each in (first, second)]
    status = "same"
    if before is None or after is None:
        status = "removed" if after is None else "added"
    elif (
        first.nodes != second.nodes
        or (first.saved, first.recomputed) != (second.saved, second.recomputed)
        or _norms_differ(norms, rounding)
    ):
        status = "changed"
    return SceneComparisonRow(
        kind=kind,
        merged=merge,
        depth=len(frames) + (kind == "line"),
        label=label,
        module=".".join(frames),
        status=status,
        lines=(first.lineno, second.lineno),
        nodes=(first.drawn, second.drawn),
        other_nodes=_other_nodes(first, second, steps) if kind == "line" else "",
        saved=(first.saved, second.saved),
        recomputed=(first.recomputed, second.recomputed),
        at_peak=(first.at_peak, second.at_peak),
        time_ns=(first.time_ns, second.time_ns),
        norm_before=norms[0],
        norm_after=norms[1],
        first_nodes=(first.first_node, second.first_node),
    )


def _other_nodes(first: _Sums, second: _Sums, steps: tuple[int, ...]) -> str:
    """Return the nodes that a step of one recording has more of: "+ReluBackward0 ×2"."""
    before, after = (
        Counter({name: math.ceil(count / own) for name, count in sums.nodes.items()})
        for sums, own in zip((first, second), steps, strict=True)
    )
    parts = [
        f"{sign}{name}" + (f" ×{count:,}" if count > 1 else "")
        for sign, nodes in (("−", before - after), ("+", after - before))  # noqa: RUF001  a minus
        for name, count in nodes.items()
    ]
    return ", ".join(parts)


def _norms_differ(norms: Sequence[float | None], rounding: Rounding) -> bool:
    before, after = norms
    if before is None or after is None:
        return before is not after
    if not (math.isfinite(before) and math.isfinite(after)):
        return math.isfinite(before) != math.isfinite(after)
    return abs(before - after) > rounding.bound(max(before, after))


def _merge_orders(before: Sequence[Item], after: Sequence[Item]) -> list[Item]:
    """Return the items of both in the order of ``after``; a removed one follows its neighbor."""
    known = set(after)
    following: dict[Item | None, list[Item]] = {}  # removed items by the kept one before them
    last: Item | None = None
    for item in before:
        if item in known:
            last = item
        else:
            following.setdefault(last, []).append(item)
    merged = following.get(None, [])
    for item in after:
        merged += [item, *following.get(item, ())]
    return merged
