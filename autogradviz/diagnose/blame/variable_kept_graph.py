"""The variable that carried a tensor, and its graph, across a backward that freed the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.source.statement_names import names_assigned, names_read

if TYPE_CHECKING:
    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import BackwardStarted


class Carried(NamedTuple):
    """An assignment to a variable."""

    name: str  # "hidden"
    location: SourceLocation
    again: bool  # the same statement took it: a state that is carried from one step to the next


def find_carrying_variable(
    evidence: Evidence, before: Op, backward: BackwardStarted, after: Op
) -> Carried | None:
    """Return the assignment to a variable by which a tensor of a freed graph was used again.

    In the innermost function that had called the op, the backward and the later op, the statement
    that led to the op assigned a variable, and the one that led to the later op read it.

    Args:
        evidence: the recording.
        before: the op that computed the tensor.
        backward: the backward that freed its graph.
        after: the op that took the tensor afterwards.
    """
    stacks = [
        evidence.analysis.user_stack(stack_id)[::-1]
        for stack_id in (before.stack_id, backward.stack_id, after.stack_id)
    ]
    lines = None
    for places in zip(*stacks, strict=False):
        if len({(place.filename, place.function) for place in places}) > 1:
            break
        lines = places
        if len({place.lineno for place in places}) > 1:
            break
    if lines is None:
        return None
    made, _, used = lines
    assigned = names_assigned(made)
    for name in sorted(assigned & names_read(used)):
        return Carried(name, made, made.lineno == used.lineno)
    return None
