"""Tables of the scene for compiled regions: regions, pictures, saved values, and the strip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_shape,
    plural,
    short_op_name,
    source_line,
)
from autogradviz.compiled_graphs.graph_text import is_view
from autogradviz.scene.compiled.picture import (
    READABLE_WIDTH,
    Tables,
    draw_region,
    picture_width,
    place_region,
)
from autogradviz.scene.compiled.recompile_tree import guard_tree
from autogradviz.scene.compiled.source_line_columns import slot_hook
from autogradviz.scene.schema import (
    SceneCompiledRegion,
    SceneCompiledSlot,
    SceneCompiledStep,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.compiled_region_types import (
        CompiledHook,
        CompiledRegion,
        CompiledSlot,
        GraphBreak,
        Recompile,
    )
    from autogradviz.scene.compiled.saved_value_ribbons import Place

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
        rows.append(describe_region(region, at, node_index, guards))
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
        counts.append(f"{_saved_text(region)} saved")
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
    location = region.location or region.compiled_by
    filename, lineno, _ = source_line(location)
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
        nbytes=region.saved_nbytes,
        filename=filename,
        lineno=lineno,
        nodes=tuple(nodes),
    )


def _saved_text(region: CompiledRegion) -> str:
    """Return the saved bytes; apart from each other those computed, and inputs, alive anyway."""
    inputs = sum(slot.nbytes for slot in region.saved if slot.kind == "input")
    computed = region.saved_nbytes - inputs
    if not (inputs and computed):
        return format_bytes(region.saved_nbytes)
    return f"{format_bytes(computed)} computed + {format_bytes(inputs)} of inputs"


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
    return SceneCompiledSlot(
        region=region,
        name=slot.source or slot_hook(slot),
        kind=slot.kind,
        description=" ".join(part for part in (slot.dtype, shape) if part),
        nbytes=slot.nbytes,
        reason=slot.reason,
        remedy=slot.remedy,
        hook=_hook(hooks.get(slot_hook(slot))),
        filename=filename,
        lineno=lineno,
        storage=-1 if storage_id is None else storage_index.get(storage_id, -1),
    )


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
        filename, lineno, text = source_line(region.location or region.compiled_by)
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
