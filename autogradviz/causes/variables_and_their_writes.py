"""Variables of the program: the lines that assign them, their tensors, and what wrote to these."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.evidence.evidence import once_per_recording
from autogradviz.diagnose.source.source_index import assigned_names

if TYPE_CHECKING:
    from autogradviz.analysis import Op
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


class Assigned(NamedTuple):
    """The last op of the lines that assign a variable, and its line of them."""

    op: Op
    location: SourceLocation


class Write(NamedTuple):
    """A write to a tensor in place."""

    seq: int
    time_ns: int
    op: str
    location: SourceLocation | None


@once_per_recording
def lines_that_assign(evidence: Evidence) -> dict[str, dict[int, SourceLocation]]:
    """Return the recorded lines that assign each variable, by the stacks that have them."""
    found: dict[str, dict[int, SourceLocation]] = defaultdict(dict)
    for stack_id in dict.fromkeys(evidence.causal_graph.stacks):
        if stack_id is not None:
            for place in evidence.analysis.user_stack(stack_id):
                for name in assigned_names(place.text):
                    found[name].setdefault(stack_id, place)
    return dict(found)


@once_per_recording
def last_assigned(evidence: Evidence) -> dict[str, Assigned]:
    """Return the op whose result each variable was last set to."""
    by_stack: dict[int, list[tuple[str, SourceLocation]]] = defaultdict(list)
    for name, lines in lines_that_assign(evidence).items():
        for stack_id, place in lines.items():
            by_stack[stack_id].append((name, place))
    found: dict[str, Assigned] = {}
    for op in evidence.analysis.ops:
        if op.phase != "forward" or op.stack_id is None:
            continue
        for name, place in by_stack.get(op.stack_id, ()):
            # PyTorch detaches a result that it saves; that one is not the variable's.
            if op.name != "detach" or "detach" in place.text:
                found[name] = Assigned(op, place)
    return found


def writes_in_place(evidence: Evidence, storage_id: int | None, after: int) -> list[Write]:
    """Return the writes to a storage after an event, oldest first.

    Those without a recorded op are known of storages that were saved.
    """
    if evidence.analysis.history(storage_id) is not None:
        return [
            Write(each.seq, each.time_ns, each.op, each.location)
            for each in evidence.analysis.writes(storage_id, after)
        ]
    return [
        Write(op.seq, op.time_ns, op.name, op.location)
        for op in evidence.writes_between(storage_id, after, 1 << 62)
    ]
