"""Selective checkpointing: what the policy said of each op, and which ops it spared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.events import OpServed, PolicyDecided

if TYPE_CHECKING:
    from autogradviz.analysis.stacks import Stacks
    from autogradviz.analysis.types import Op
    from autogradviz.event_log import Log


def with_policies(log: Log, ops: tuple[Op, ...], stacks: Stacks) -> tuple[Op, ...]:
    """Return the ops with what the policy said of them, and those that it spared in between.

    A spared op stands where the recomputation asked for it, as the op of the forward whose
    result it was given.
    """
    decisions = {event.op_seq: event.decision for event in log.of(PolicyDecided)}
    if not decisions:
        return ops
    told = [replace(op, policy=decisions.get(op.seq, "")) for op in ops]
    by_seq = {op.seq: op for op in told}
    for event in log.of(OpServed):
        op = None if event.op_seq is None else by_seq.get(event.op_seq)
        if op is not None:
            served = replace(
                op,
                seq=event.seq,
                time_ns=event.time_ns,
                thread=event.thread,
                duration_ns=0,
                phase="recompute",
                node_id=None,
                sequence_nr=None,
                region_id=event.region_id,
                recompute_id=event.recompute_id,
                location=stacks.location(event.stack_id),
                stack_id=event.stack_id,
                cached=True,
            )
            told.append(served)
    return tuple(sorted(told, key=lambda op: op.seq))
