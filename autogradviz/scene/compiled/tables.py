"""The tables of compiled regions in the view model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_shape,
    plural,
    short_location,
    source_line,
)
from autogradviz.analysis.places_and_reasons_of_compiled_saves import BUDGET
from autogradviz.compiled_graphs.read_graph_text import is_view
from autogradviz.scene.compiled.columns_by_line_or_block import saved_texts, slot_hook
from autogradviz.scene.compiled.picture import (
    READABLE_WIDTH,
    Tables,
    draw_region,
    picture_width,
    place_region,
)
from autogradviz.scene.schema import SceneCompiledRegion, SceneCompiledSlot, SceneCompiledStep
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.compiled_region_types import (
        CompiledHook,
        CompiledRegion,
        CompiledSlot,
        GraphBreak,
        Recompile,
    )
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.scene.compiled.place_columns import Place
    from autogradviz.scene.schema import SceneCompiledPicture


# --- the compilations of one function as a tree: which guard failed, and what was compiled instead

_NOT_ALLOWED: Final = ": not in recomputable allowlist"
_STORED: Final = ("materialized in backward", "the backward would store its result anyway")
"""A reason of the partitioner, and what it means."""


def guard_tree(region: CompiledRegion, recompiles: Iterable[Recompile]) -> tuple[str, ...]:
    """Return the lines of the tree that a region belongs to; none if nothing was compiled again.

    A compilation is below the one whose guard failed. The line of the region itself is marked.
    """
    frame = _frame(region.compile_id)
    again = {each.compile_id: each for each in recompiles if _frame(each.compile_id) == frame}
    if not frame or not again:
        return ()
    below: dict[str, list[str]] = {}
    for compile_id, each in again.items():
        below.setdefault(each.failed_compile_id, []).append(compile_id)
    roots = [compile_id for compile_id in below if compile_id not in again]
    lines: list[str] = []
    waiting = [(root, 0) for root in reversed(roots)]
    seen: set[str] = set()
    while waiting:
        compile_id, depth = waiting.pop()
        if compile_id in seen:
            continue
        seen.add(compile_id)
        cause = f": {again[compile_id].guard} failed" if compile_id in again else ""
        mark = " (this region)" if compile_id == region.compile_id else ""
        lines.append(f"{'  ' * depth}{compile_id or 'an earlier compilation'}{mark}{cause}")
        waiting += [(child, depth + 1) for child in reversed(below.get(compile_id, ()))]
    return tuple(lines)


def _frame(compile_id: str) -> str:
    """Return the number of the function in "[0/1]" or "0/1"."""
    return compile_id.partition("/")[0]


# --- compiled regions inside the autograd graph: which nodes run them, and which are opened -------


def region_of_nodes(
    regions: Sequence[CompiledRegion], node_index: Mapping[int, int]
) -> dict[int, int]:
    """Return the position of the region that each node runs.

    Args:
        regions: the compiled regions of a recording.
        node_index: index of each drawn node, by id.

    Returns:
        The position of the region by the index of the node; eager nodes are left out.
    """
    return {
        node_index[run.node_id]: at
        for at, region in enumerate(regions)
        for run in region.runs
        if run.node_id is not None and run.node_id in node_index
    }


def regions_named(regions: Iterable[CompiledRegion], name: str) -> list[CompiledRegion]:
    """Return the regions of a name, a compile id, or else of a function."""
    regions = list(regions)
    found = [each for each in regions if name in {each.name, each.compile_id}]
    return found or [each for each in regions if each.name.partition(" ")[0] == name]


def node_to_open(
    name: str, regions: Sequence[CompiledRegion], region_of: Mapping[int, int]
) -> int | None:
    """Return the first node that runs a region of a name; None if there is none."""
    named = {each.region_id for each in regions_named(regions, name)}
    nodes = [node for node, at in region_of.items() if regions[at].region_id in named]
    return min(nodes, default=None)


def dominating_nodes(
    regions: Sequence[CompiledRegion], region_of: Mapping[int, int], node_count: int
) -> list[int]:
    """Return the first node that runs each region, if the regions say more than the graph.

    Args:
        regions: the compiled regions of a recording.
        region_of: the position of the region that each node runs.
        node_count: number of drawn nodes.

    Returns:
        None of them if the graph has more nodes than the regions have ops.
    """
    first = {region_of[node]: node for node in sorted(region_of, reverse=True)}
    ops = sum(len(regions[at].forward_ops) + len(regions[at].backward_ops) for at in first)
    return sorted(first.values()) if node_count <= ops else []


def region_contents(region: CompiledRegion) -> str:
    """Return the numbers of ops of a region, forward + backward; nothing if they are unknown."""
    if not region.forward_ops and not region.backward_ops:
        return ""
    counts = f"{len(region.forward_ops):,} forward + {len(region.backward_ops):,} backward ops"
    again = sum(not is_view(op.target) for op in region.recomputed)
    return f"{counts}, {again:,} recomputed" if again else counts


def picture_sizes(
    rows: Iterable[SceneCompiledRegion], pictures: Iterable[SceneCompiledPicture]
) -> dict[int, tuple[float, float]]:
    """Return width and height of the picture that opens at each node."""
    sizes = {
        picture.region: (picture.width, picture.height) for picture in pictures if picture.initial
    }
    return {node: sizes[row.index] for row in rows for node in row.nodes if row.index in sizes}


# --- tables of the scene for compiled regions: regions, pictures, saved values, and the strip -----


PLANNED: Final = "planned: inductor fuses these ops into kernels"


def build_compiled_tables(
    analysis: Analysis,
    node_index: Mapping[int, int],
    storage_index: Mapping[int, int],
    *,
    only: Collection[int] | None = None,
) -> dict[str, Any]:
    """Return the scene's tables of compiled regions by name.

    Args:
        analysis: the analysis of the recording.
        node_index: index of each drawn node, by id.
        storage_index: index of each storage, by id.
        only: positions of the regions to draw, without the strip; by default all, with it.
    """
    regions = analysis.compiled_regions
    tables = Tables()
    rows: list[SceneCompiledRegion] = []
    steps = _steps(regions, analysis.graph_breaks, analysis.recompiles) if only is None else ()
    for index, region in enumerate(regions):
        if only is not None and index not in only:
            continue
        at, first_slot = len(rows), len(tables.slots)
        tables.slots += slot_rows(region, at, storage_index)
        draw_pictures(tables, region, at, first_slot)
        guards = guard_tree(region, analysis.recompiles) if only is None else ()
        row = describe_region(region, at, node_index, guards)
        if only is None:
            row = replace(row, notes=(*row.notes, *_advice(region), *_storages(analysis, region)))
        rows.append(row)
    return {
        "compiled_regions": tuple(rows),
        "compiled_pictures": tuple(tables.pictures),
        "compiled_marks": tuple(tables.marks),
        "compiled_items": tuple(tables.items),
        "compiled_slots": tuple(tables.slots),
        "compiled_steps": steps,
    }


def draw_pictures(tables: Tables, region: CompiledRegion, index: int, first_slot: int) -> None:
    """Append the pictures of a region by lines and by blocks; equal ones are drawn once."""
    blocks, lines = place_region(region, "blocks"), place_region(region, "lines")
    differ = _outline(lines) != _outline(blocks)
    by_lines = differ and picture_width(lines) <= READABLE_WIDTH
    draw_region(tables, region, index, first_slot, "blocks", blocks, initial=not by_lines)
    if differ:
        draw_region(tables, region, index, first_slot, "lines", lines, initial=by_lines)


def _outline(places: Sequence[Place]) -> list[tuple[float, ...]]:
    """Return the size of each column."""
    return [
        (each.x, each.width, len(each.forward), len(each.backward), len(each.ribbons))
        for each in places
    ]


def describe_region(
    region: CompiledRegion, index: int, node_index: Mapping[int, int], guards: tuple[str, ...] = ()
) -> SceneCompiledRegion:
    """Return the row of a region."""
    counts = [region.backend, plural(len(region.forward_ops), "forward op")]
    if region.differentiable:
        counts.append(plural(len(region.backward_ops), "backward op"))
        counts.append(f"{' '.join(saved_texts(region))} saved")
    if region.recomputed:
        views = sum(is_view(op.target) for op in region.recomputed)
        again = [(len(region.recomputed) - views, "op"), (views, "view")]
        counts.append(" and ".join(plural(*each) for each in again if each[0]) + " recomputed")
    notes = [f"not read: {part}" for part in region.missing]
    if region.source == "found":
        notes.insert(0, "compiled before the recording")
    if region.cache:
        reason = f": {region.cache_reason}" if region.cache_reason else ""
        notes.insert(0, f"cache {region.cache}{reason}")
    filename, lineno, _ = source_line(_begin(region))
    nodes = dict.fromkeys(
        node_index[run.node_id] for run in region.runs if run.node_id in node_index
    )
    return SceneCompiledRegion(
        index=index,
        region_id=region.region_id,
        name=region.name,
        subtitle=" · ".join(part for part in counts if part),
        planned=PLANNED if region.planned else "",
        notes=tuple(notes),
        guards=guards,
        saved=" ".join(saved_texts(region)),
        filename=filename,
        lineno=lineno,
        nodes=tuple(nodes),
    )


def _advice(region: CompiledRegion) -> Iterator[str]:
    """Yield the changes with which the backward computes most of what is saved."""
    lines: Counter[str] = Counter()
    by_budget = 0
    for slot in region.saved:
        if slot.remedy:
            lines[short_location(slot.location) if slot.location else ""] += slot.nbytes
            by_budget += slot.nbytes if BUDGET in slot.remedy else 0
    if not lines:
        return
    line, most = lines.most_common(1)[0]
    total = lines.total()
    ways = [f"torch.utils.checkpoint around {line}, for {format_bytes(most)}"] if line else []
    if by_budget:
        ways.append(f"{BUDGET} below 1, for up to {format_bytes(by_budget)}")
    if ways:
        yield f"To save less: {format_bytes(total)} can be computed again. {', or '.join(ways)}."


def _storages(analysis: Analysis, region: CompiledRegion) -> Iterator[str]:
    """Yield the bytes that other views show of a region, if they are others."""
    nodes = [run.node_id for run in region.runs if run.node_id is not None]
    if nodes:
        nbytes = analysis.saved_memory.counted_for_nodes({nodes[-1]})[0].saved
        if nbytes and format_bytes(nbytes) != format_bytes(region.computed_nbytes):
            yield (
                f"Graph and Step show {format_bytes(nbytes)} for a run: whole storages, without "
                "parameters."
            )


def _begin(region: CompiledRegion) -> SourceLocation | None:
    """Return the line at which a region runs, as in views of times and lines, else its end."""
    ran = next((run.location for run in region.runs if run.location), None)
    return ran or region.location or region.compiled_by


def slot_rows(
    region: CompiledRegion, index: int, storage_index: Mapping[int, int]
) -> list[SceneCompiledSlot]:
    """Return the rows of a region's saved values."""
    hooks = {hook.slot: hook for hook in region.hooks}
    return [_slot(slot, index, storage_index, hooks) for slot in region.saved]


def _hook(hook: CompiledHook | None) -> str:
    if hook is None:
        return ""
    if not hook.inlined:
        return f"Saved-tensor hooks are not applied: {hook.reason}"
    pack, unpack = (
        ", ".join(display_op_name(short_op_name(op)) for op in ops) or "no op"
        for ops in (hook.pack, hook.unpack)
    )
    change = f"{format_bytes(hook.nbytes_before)} → {format_bytes(hook.nbytes_after)}"
    return f"Packed by {pack} ({change}), unpacked by {unpack}"


def _slot(
    slot: CompiledSlot,
    region: int,
    storage_index: Mapping[int, int],
    hooks: Mapping[str, CompiledHook],
) -> SceneCompiledSlot:
    filename, lineno, _ = source_line(slot.location)
    shape = slot.symbolic_shape or format_shape(slot.shape)
    tensor = slot.runs[-1].tensor if slot.runs else None
    storage_id = tensor.storage_id if tensor else None
    again = slot.remedy.removesuffix(f", or {BUDGET} below 1")  # which is a note of the region
    return SceneCompiledSlot(
        region=region,
        name=slot.source or slot_hook(slot),
        kind=slot.kind,
        description=" ".join(part for part in (slot.dtype, shape) if part),
        nbytes=slot.nbytes,
        reason=_plain(slot.reason),
        remedy=again and f"To compute it again: {again}",
        hook=_hook(hooks.get(slot_hook(slot))),
        filename=filename,
        lineno=lineno,
        storage=-1 if storage_id is None else storage_index.get(storage_id, -1),
    )


def _plain(reason: str) -> str:
    """Return why a value is saved, in other words than the partitioner's."""
    reason = reason.replace(*_STORED)
    if not reason.endswith(_NOT_ALLOWED):
        return reason
    need, _, obstacle = reason.removesuffix(_NOT_ALLOWED).partition("; ")
    if obstacle.endswith(" may not run again"):
        name = obstacle.removesuffix(" may not run again")
        return f"{need}; the compiler does not run {name} again"
    name = obstacle.removeprefix("recomputing it would run ").removesuffix(" again")
    return f"{need}; it depends on {name}, which the compiler does not run again"


def _steps(
    regions: Sequence[CompiledRegion],
    graph_breaks: Sequence[GraphBreak],
    recompiles: Sequence[Recompile],
) -> tuple[SceneCompiledStep, ...]:
    """Return regions, recompilations before them, and graph breaks after them, in order."""
    steps: list[SceneCompiledStep] = []
    seen: set[int] = set()

    def add_break(each: GraphBreak) -> None:
        if each.seq in seen:
            return
        seen.add(each.seq)
        filename, lineno, text = source_line(each.location)
        hint = [line.strip() for line in each.details.splitlines() if "Hint:" in line]
        steps.append(
            SceneCompiledStep(
                kind="break",
                title=each.reason,
                text=text,
                hint=hint[0].removeprefix("Hint:").strip() if hint else "",
                filename=filename,
                lineno=lineno,
                region=-1,
            )
        )

    def add_recompile(each: Recompile) -> None:
        if each.seq in seen:
            return
        seen.add(each.seq)
        filename, lineno, _ = source_line(each.location)
        steps.append(
            SceneCompiledStep(
                kind="recompile",
                title=each.guard,
                text=each.guard_line,
                hint=f"Compiled again, {each.count} of at most {each.limit} times",
                filename=filename,
                lineno=lineno,
                region=-1,
            )
        )

    for index, region in enumerate(regions):
        for recompile in region.recompiles:
            add_recompile(recompile)
        filename, lineno, text = source_line(_begin(region))
        steps.append(
            SceneCompiledStep(
                kind="region",
                title=region.name,
                text=text,
                hint="",
                filename=filename,
                lineno=lineno,
                region=index,
            )
        )
        for each in region.graph_breaks:
            add_break(each)
    for each in graph_breaks:
        add_break(each)
    for recompile in recompiles:
        add_recompile(recompile)
    return tuple(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionScene:
    """One region with its tables, for a picture without a recording around it."""

    region: SceneCompiledRegion
    tables: Tables


def build_region_scene(region: CompiledRegion) -> RegionScene:
    """Return the tables of a single region."""
    tables = Tables(slots=slot_rows(region, 0, {}))
    draw_pictures(tables, region, 0, 0)
    return RegionScene(region=describe_region(region, 0, {}), tables=tables)
