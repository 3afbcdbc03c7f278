"""Operator calls with their tensors, modules and source lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import short_op_name
from autogradviz.analysis.types import Op
from autogradviz.event_log.named_tuple_rows import rows_of
from autogradviz.events import OpCalled, RegionEntered
from autogradviz.fast_dataclass import maker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.stacks import Stacks
    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_nodes import OpNodeMatches

_make_op = maker(Op)


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

    def location(event: OpCalled) -> SourceLocation | None:
        if event.recompute_id is None:
            return stacks.location(event.stack_id)
        inside = stacks.location_inside(event.stack_id)
        if inside is not None or event.region_id is None:
            return inside
        return stacks.location(regions.get(event.region_id, event.stack_id))

    return tuple(
        _make_op(
            seq=event.seq,
            time_ns=event.time_ns,
            thread=event.thread,
            duration_ns=event.duration_ns,
            name=short_op_name(event.op),
            overload=event.op,
            phase=event.phase,
            inputs=tuple(map(tensor, event.inputs)),
            input_versions=event.input_versions,
            outputs=tuple(map(tensor, event.outputs)),
            written=tuple(map(tensor, event.written)) if event.written else (),
            input_hashes=event.input_hashes,
            output_hashes=event.output_hashes,
            sequence_nr=event.sequence_nr,
            node_id=matches.node_of_op.get(event.seq),
            backward_node_id=event.node_id,
            module=call_modules.get(event.call_id, ""),
            region_id=event.region_id,
            recompute_id=event.recompute_id,
            failed=event.failed,
            location=location(event),
            stack_id=event.stack_id,
        )
        for event in rows_of(log, OpCalled)
    )


def find_creators(ops: Iterable[Op]) -> dict[int, Op]:
    """Return the op that created each storage: the first to output it without it as an input."""
    creators: dict[int, Op] = {}
    read: set[int | None] = set()
    for op in ops:
        read.update(tensor.storage_id for tensor in op.inputs)
        for tensor in op.outputs:
            if tensor.storage_id is not None and tensor.storage_id not in read:
                creators.setdefault(tensor.storage_id, op)
    return creators
