"""Operator calls with their tensors, modules and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import OpCalled
from autogradviz.model.link import Links, short_op_name
from autogradviz.model.rows import rows_of
from autogradviz.model.types import Op

if TYPE_CHECKING:
    from autogradviz.log import Log
    from autogradviz.model.definitions import Tensors
    from autogradviz.model.stacks import Stacks


def build_ops(
    log: Log,
    tensors: Tensors,
    stacks: Stacks,
    links: Links,
    call_modules: dict[int | None, str],
) -> tuple[Op, ...]:
    """Return all operator calls, oldest first."""
    return tuple(
        Op(
            seq=event.seq,
            time_ns=event.time_ns,
            thread=event.thread,
            duration_ns=event.duration_ns,
            name=short_op_name(event.op),
            overload=event.op,
            phase=event.phase,
            inputs=tuple([tensors[i] for i in event.inputs]),
            input_versions=event.input_versions,
            outputs=tuple([tensors[i] for i in event.outputs]),
            written=tuple([tensors[i] for i in event.written]),
            sequence_nr=event.sequence_nr,
            node_id=links.node_of_op.get(event.seq),
            backward_node_id=event.node_id,
            module=call_modules.get(event.call_id, ""),
            region_id=event.region_id,
            recompute_id=event.recompute_id,
            failed=event.failed,
            location=stacks.location(event.stack_id),
            stack_id=event.stack_id,
        )
        for event in rows_of(log, OpCalled)
    )
