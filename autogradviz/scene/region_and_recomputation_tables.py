"""Tables of checkpoint regions, and of how their recomputations differ."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import align_saves, other_inputs, place_replaced
from autogradviz.analysis.analysis import UNNAMED
from autogradviz.analysis.formatting import (
    display_op_name,
    format_shape,
    source_line,
)
from autogradviz.analysis.idle_time import recomputation_times
from autogradviz.analysis.writes_between_states import texts_of_change
from autogradviz.events import StateChanged
from autogradviz.scene.schema import (
    SceneChange,
    SceneDiffRow,
    SceneRegion,
    SceneSavedDiff,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op, OpPair, Region, SavedTensor


MAX_SAVED_DIFFS: Final = 200
"""Maximum number of rows of one region."""


def build_regions(analysis: Analysis) -> tuple[SceneRegion, ...]:
    """Return the checkpoint regions."""
    regions = analysis.regions
    costs = _region_costs(analysis)
    region_index: dict[int | None, int] = {r.region_id: i for i, r in enumerate(regions)}
    rows = []
    for i, region in enumerate(regions):
        filename, lineno, _ = source_line(region.location)
        rows.append(
            SceneRegion(
                index=i,
                region_id=region.region_id,
                parent=region_index.get(region.parent_region_id, -1),
                module=region.module,
                function=region.function,
                reentrant=region.reentrant,
                early_stop=region.early_stop,
                filename=filename,
                lineno=lineno,
                saved=len(region.saved),
                recomputes=len(region.recomputations),
                outcome=(region.recomputations[-1].outcome or "") if region.recomputations else "",
                options=_options(region),
                freed_nbytes=costs[region.region_id].freed_nbytes,
                held_nbytes=costs[region.region_id].held_nbytes,
                recompute_ns=costs[region.region_id].recompute_ns,
                step=min(analysis.steps.at(region.entered_seq), len(analysis.steps) - 1),
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _RegionCosts:
    """Bytes that a checkpoint region frees and holds, and the time of its recomputations."""

    freed_nbytes: int
    held_nbytes: int
    recompute_ns: int


def _region_costs(analysis: Analysis) -> dict[int, _RegionCosts]:
    """Return the costs of each checkpoint region by its id. Parameters are alive anyway."""
    owned = {analysis.tensors[tensor_id].storage_id for tensor_id in analysis.parameters}
    arguments: dict[int | None, dict[int | None, int]] = defaultdict(dict)  # sizes by storage
    for saved in analysis.saved.values():
        if saved.is_argument and saved.tensor.storage_id not in owned:
            arguments[saved.region_id][saved.tensor.storage_id] = saved.tensor.storage_nbytes
    costs, times = {}, recomputation_times(analysis)
    for region in analysis.regions:
        held = arguments[region.region_id]
        freed = {
            saved.tensor.storage_id: saved.tensor.storage_nbytes
            for saved in region.saved
            if saved.tensor.storage_id not in owned and saved.tensor.storage_id not in held
        }
        costs[region.region_id] = _RegionCosts(
            sum(freed.values()), sum(held.values()), times[region.region_id]
        )
    return costs


def _options(region: Region) -> str:
    """Return the options of a checkpoint call that differ from the defaults."""
    options = [] if region.preserve_rng else ["preserve_rng_state=False"]
    options += ["debug=True"] if region.debug else []
    if not region.reentrant and region.determinism_check != "default":
        options.append(f'determinism_check="{region.determinism_check}"')
    groups = {r.exec_group for r in region.recomputations if r.exec_group is not None}
    options += [f"GraphExecGroup {group}" for group in sorted(groups)]
    return ", ".join(options)


def build_diffs(analysis: Analysis) -> tuple[SceneDiffRow, ...]:
    """Return each region's forward aligned with its last recomputation, op by op."""
    rows: list[SceneDiffRow] = []
    for i, region in enumerate(analysis.regions):
        forward_nr = recompute_nr = 0
        for pair in place_replaced(
            region.recomputations[-1].pairs if region.recomputations else ()
        ):
            forward_nr += pair.forward is not None
            recompute_nr += pair.recompute is not None
            forward_op, forward_shape, forward_file, forward_line = _op_columns(pair.forward)
            op, shape, filename, lineno = _op_columns(pair.recompute)
            if pair.status == "other_input":
                forward_op, op = _with_other_inputs(analysis, pair, region.module)
            rows.append(
                SceneDiffRow(
                    region=i,
                    status=pair.status,
                    forward_nr=forward_nr if pair.forward else 0,
                    forward_op=forward_op,
                    forward_shape=forward_shape,
                    forward_line=forward_line,
                    recompute_nr=recompute_nr if pair.recompute else 0,
                    recompute_op=op,
                    recompute_shape=shape,
                    recompute_line=lineno,
                    filename=forward_file or filename,
                    recompute_file=filename,
                    policy=pair.forward.policy.replace("_", " ") if pair.forward else "",
                )
            )
    return tuple(rows)


def _with_other_inputs(analysis: Analysis, pair: OpPair, module: str) -> tuple[str, str]:
    """Return an op of both runs with the inputs that differ, "t(up.weight)" and "t(down.weight)".

    Names begin inside the module of the region.
    """
    found = other_inputs(pair, analysis.parameters)
    sides = ([analysis.leaf_name(t.tensor_id).removeprefix(f"{module}.") for t in tensors]
             for tensors in zip(*found, strict=True))  # fmt: skip
    before, now = (", ".join(each for each in names if each != UNNAMED) for names in sides)
    if before == now:
        before, now = "", "another tensor"
    assert pair.forward is not None
    name = pair.forward.name
    first, second = (f"{name}({text})" if text else name for text in (before, now))
    return first, second


def _op_columns(op: Op | None) -> tuple[str, str, str, int]:
    """Return name, output shape, file and line number of an op."""
    if op is None:
        return "", "", "", 0
    filename, lineno, _ = source_line(op.location)
    return op.name, format_shape(op.outputs[0].shape) if op.outputs else "", filename, lineno


def build_changes(analysis: Analysis) -> tuple[SceneChange, ...]:
    """Return the state that differed at the last recomputation of each region."""
    region_index = {region.region_id: i for i, region in enumerate(analysis.regions)}
    changes = {}  # a later recomputation replaces an earlier one
    for event in analysis.log.of(StateChanged):
        if event.region_id in region_index:
            filename, lineno, _ = source_line(analysis.location(event.stack_id))
            if not lineno and event.in_forward:
                filename, lineno = _only_update(analysis, event.state_name)
            before, after = texts_of_change(analysis, event)
            step = _step_of_line(analysis, filename, lineno, event.state_name)
            numbers = (event.before_number, event.after_number)
            before_next, after_next = (
                "" if step is None or number is None else f"{number + step:g}" for number in numbers
            )
            changes[event.region_id, event.state_name] = SceneChange(
                region=region_index[event.region_id],
                name=event.state_name,
                before=before,
                after=after,
                by_forward=event.in_forward,
                filename=filename,
                lineno=lineno,
                before_next=before_next,
                after_next=after_next,
            )
    return tuple(sorted(changes.values(), key=lambda change: change.region))


def _step_of_line(analysis: Analysis, filename: str, lineno: int, name: str) -> float | None:
    """Return the number that a line adds to a state, None if it does something else."""
    text = analysis.source_lines.get((filename, lineno), "").strip()
    found = re.match(rf"{re.escape(name)}\s*([+-])=\s*(\d+(?:\.\d+)?)\s*(?:#|$)", text)
    return float(found[1] + found[2]) if found else None


def _only_update(analysis: Analysis, name: str) -> tuple[str, int]:
    """Return file and number of the only recorded line that updates a name, if there is one."""
    update = re.compile(rf"{re.escape(name)}\s*(\+|-|\*|/|//|%|\||&)=")
    found = [place for place, text in analysis.source_lines.items() if update.match(text.strip())]
    return found[0] if len(found) == 1 else ("", 0)


def build_saved_diffs(analysis: Analysis) -> tuple[SceneSavedDiff, ...]:
    """Return the saved tensors whose metadata differ in each region's last recomputation."""
    return tuple(
        row
        for i, region in enumerate(analysis.regions)
        for row in _saved_diffs(analysis, i, region)
    )


def _saved_diffs(analysis: Analysis, index: int, region: Region) -> Iterator[SceneSavedDiff]:
    last = region.recomputations[-1] if region.recomputations else None
    if last is None or not last.saved:
        return
    rows = list(align_saves(last.pairs, region.saved, last.saved))
    if last.outcome == "early_stop":  # the tensors after the last one of it were not needed
        while rows and rows[-1][1] is None:
            rows.pop()
    count = 0
    for at, (first, second) in enumerate(rows):
        before, after = _metadata(first), _metadata(second)
        if before == after or count == MAX_SAVED_DIFFS:
            continue
        count += 1
        position = (first or second or region.saved[0]).position
        yield SceneSavedDiff(
            region=index,
            position=at if position is None else position,
            slot=_slot(analysis, first or second),
            before=before,
            after=after,
        )


def _metadata(saved: SavedTensor | None) -> str:
    if saved is None:
        return "not saved"
    tensor = saved.tensor
    device = "" if tensor.device == "cpu" else f" {tensor.device}"
    return f"{tensor.dtype} {format_shape(tensor.shape)}{device}"


def _slot(analysis: Analysis, saved: SavedTensor | None) -> str:
    assert saved is not None, "one of the runs saved a tensor"
    node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
    owner = display_op_name(saved.op.name) if saved.op else node.name if node else ""
    return ".".join(part for part in (owner, saved.slot or "") if part)
