"""Selective checkpointing: the policy's decision for each op, and ops served from its cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.events import OpServed, PolicyDecided

if TYPE_CHECKING:
    from autogradviz.analysis.types import Op
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks


def add_policy_decisions(log: Log, ops: tuple[Op, ...], stacks: Stacks) -> tuple[Op, ...]:
    """Return the ops with the policy's decisions, and the cached ops in between.

    A cached op is a copy of the forward op whose result the recomputation received, at the place
    where the recomputation called it.
    """
    decisions = {event.op_seq: event.decision for event in log.of(PolicyDecided)}
    if not decisions:
        return ops
    decided = [replace(op, policy=decisions.get(op.seq, "")) for op in ops]
    by_seq = {op.seq: op for op in decided}
    for event in log.of(OpServed):
        op = None if event.op_seq is None else by_seq.get(event.op_seq)
        if op is not None:
            cached = replace(
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
            decided.append(cached)
    return tuple(sorted(decided, key=lambda op: op.seq))
