"""Custom Functions: the ops of their forward and backward."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def class_name(node: Node) -> str:
    """Return "MyFunction" of the node "MyFunctionBackward"."""
    return node.name.removesuffix("Backward")


def frame_in(evidence: Evidence, op: Op, owner: str, method: str) -> SourceLocation | None:
    """Return the line in a method of a class from which an op was called."""
    wanted = f"{owner}.{method}"
    return next(
        (
            place
            for place in evidence.analysis.stack(op.stack_id)
            if place.function == wanted or place.function.endswith(f".{wanted}")
        ),
        None,
    )


def applied_at(evidence: Evidence, node: Node) -> SourceLocation | None:
    """Return the line that called a custom Function, if its forward ran an op."""
    wanted = f"{class_name(node)}.forward"
    for op in evidence.analysis.ops:
        places = evidence.analysis.stack(op.stack_id) if op.phase != "backward" else ()
        for inner, outer in pairwise(place for place in places if place.text):
            if f".{inner.function}".endswith(f".{wanted}"):
                return outer
    return None


def forward_of(evidence: Evidence, node: Node) -> tuple[int, int]:
    """Return the sequence numbers between which a custom Function's forward ran.

    Its ops make no nodes, so the forward lies between the op of the previous node and the op of
    the next one.
    """
    made = evidence.node_making_ops.get(node.thread, [])
    number = node.sequence_nr or 0
    older = bisect_left(made, number, key=itemgetter(0))
    younger = bisect_right(made, number, key=itemgetter(0))
    return (
        made[older - 1][1] if older else -1,
        made[younger][1] if younger < len(made) else 1 << 62,
    )


def ops_within(evidence: Evidence, first: int, last: int) -> tuple[Op, ...]:
    """Return the ops between two events."""
    ops = evidence.analysis.ops
    begin = bisect_right(ops, first, key=attrgetter("seq"))
    return tuple(ops[begin : bisect_left(ops, last, lo=begin, key=attrgetter("seq"))])
