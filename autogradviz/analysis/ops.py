"""Operator calls with their tensors, modules and source lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import short_op_name
from autogradviz.analysis.types import Op
from autogradviz.events import OpCalled, RegionEntered
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.analysis.stacks import Stacks
    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_nodes import OpNodeMatches

_make_op: Callable[..., Op] = maker(Op)


def build_ops(
    log: Log,
    tensors: Tensors,
    stacks: Stacks,
    matches: OpNodeMatches,
    call_modules: dict[int | None, str],
) -> tuple[Op, ...]:
    """Return all operator calls, oldest first.

    A recomputed op with no user code between it and checkpoint gets the line that called
    checkpoint, as in the forward, and not the line that called backward.
    """
    regions = {event.region_id: event.stack_id for event in log.of(RegionEntered)}
    tensor = tensors.__getitem__
    node_of_op = matches.node_of_op

    def location(stack_id: int | None, region_id: int | None) -> SourceLocation | None:
        """Return the line of a recomputed op."""
        inside = stacks.location_inside(stack_id)
        if inside is not None or region_id is None:
            return inside
        return stacks.location(regions.get(region_id, stack_id))

    stack_ids = set(log.column(OpCalled, "stack_id"))
    location_of = {stack_id: stacks.location(stack_id) for stack_id in stack_ids}
    names = {op: short_op_name(op) for op in set(log.column(OpCalled, "op"))}
    ops = []
    # Positional arguments: keywords take half as long again for a million events.
    for (
        seq, time_ns, thread, stack_id, op, phase, inputs, input_versions, outputs, written,
        input_hashes, output_hashes, duration_ns, sequence_nr, node_id, call_id, region_id,
        recompute_id, failed,
    ) in log.fields(
        OpCalled, "seq", "time_ns", "thread", "stack_id", "op", "phase", "inputs",
        "input_versions", "outputs", "written", "input_hashes", "output_hashes", "duration_ns",
        "sequence_nr", "node_id", "call_id", "region_id", "recompute_id", "failed",
    ):  # fmt: skip
        ops.append(
            _make_op(
                seq,
                time_ns,
                thread,
                duration_ns,
                names[op],
                op,
                phase,
                tuple(map(tensor, inputs)),
                input_versions,
                tuple(map(tensor, outputs)),
                tuple(map(tensor, written)) if written else (),
                input_hashes,
                output_hashes,
                sequence_nr,
                node_of_op.get(seq),
                node_id,
                call_modules.get(call_id, ""),
                region_id,
                recompute_id,
                failed,
                location_of[stack_id] if recompute_id is None else location(stack_id, region_id),
                stack_id,
            )
        )
    return tuple(ops)


def find_creators(ops: Iterable[Op]) -> dict[int, Op]:
    """Return the op that created each storage: the first to output it without it as an input.

    A storage may have views before the op that creates it: the pack hook of a saved result runs
    inside the op.
    """
    creators: dict[int | None, Op] = {}
    read: set[int | None] = set()
    for op in ops:
        inputs = {tensor.storage_id for tensor in op.inputs}
        if op.written:
            inputs.update([tensor.storage_id for tensor in op.written])
        outputs = {tensor.storage_id for tensor in op.outputs}
        read |= inputs - outputs
        for storage_id in outputs:
            if storage_id not in creators and storage_id not in inputs and storage_id not in read:
                creators[storage_id] = op
    return {storage_id: op for storage_id, op in creators.items() if storage_id is not None}
