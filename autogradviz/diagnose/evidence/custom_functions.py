"""Evidence about custom Functions: their ops, and their backward."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from autogradviz.diagnose.source import source_index as source
from autogradviz.events import FrameSeen

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- the line of a custom Function that gives its gradients ---------------------------------------


def backward_line(analysis: Analysis, name: str) -> SourceLocation | None:
    """Return the last return statement in the backward of a custom Function of the user."""
    files = dict.fromkeys(f.filename for f in analysis.log.of(FrameSeen) if not f.library)
    for filename in files:
        for function, owner in source.functions(filename):
            parts = function.split(".")
            if parts[-1] == "backward" and len(parts) > 1 and parts[-2] == name:
                line = source.last_return(owner)
                if line is not None:
                    return source.location(filename, line, function)
    return None


# --- custom Functions: the ops of their forward and backward --------------------------------------


def class_name(evidence: Evidence, node: Node) -> str:
    """Return "MyFunction" of the node "MyFunctionBackward", and the name of another node."""
    return evidence.analysis.custom_functions.get(node.node_id, node.name)


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
    wanted = f"{class_name(evidence, node)}.forward"
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
