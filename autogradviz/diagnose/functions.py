"""Custom Functions: which operators their forward and their backward ran."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Node, Op, SourceLocation


def class_name(node: Node) -> str:
    """Return "MyFunction" of the node "MyFunctionBackward"."""
    return node.name.removesuffix("Backward")


def frame_in(evidence: Evidence, op: Op, owner: str, method: str) -> SourceLocation | None:
    """Return where a method of a class of that name stood when an op was called."""
    wanted = f"{owner}.{method}"
    return next(
        (
            place
            for place in evidence.model.stack(op.stack_id)
            if place.function == wanted or place.function.endswith(f".{wanted}")
        ),
        None,
    )


def applied_at(evidence: Evidence, node: Node) -> SourceLocation | None:
    """Return where a custom Function was called, where its forward ran an operator."""
    wanted = f"{class_name(node)}.forward"
    for op in evidence.model.ops:
        places = evidence.model.stack(op.stack_id) if op.phase != "backward" else ()
        for inner, outer in pairwise(place for place in places if place.text):
            if f".{inner.function}".endswith(f".{wanted}"):
                return outer
    return None


def forward_of(evidence: Evidence, node: Node) -> tuple[int, int]:
    """Return the event numbers between which a custom Function's forward ran.

    Its operators make no nodes: they lie between the last older node's and the first younger's.
    """
    number = node.sequence_nr or 0
    first, last = -1, 1 << 62
    for op in evidence.model.ops:
        if op.sequence_nr is not None and op.thread == node.thread and op.phase != "backward":
            if op.sequence_nr < number:
                first = max(first, op.seq)
            elif op.sequence_nr > number:
                last = min(last, op.seq)
    return first, last
