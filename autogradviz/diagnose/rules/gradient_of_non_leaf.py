"""``.grad`` of a tensor that is no leaf is None: find the line that computed the tensor."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "gradient-of-non-leaf",
    mechanism="cut",
    when=ErrorMessage("NoneType"),
    group="operation refused",
)
def gradient_of_non_leaf(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a line failed that reads ``.grad``, and a tensor replaced a leaf."""
    line = evidence.raised_at()
    names = _read_gradients(line) if line is not None else set()
    if not names:
        return
    made = _rebound(evidence, line, names) or _from_lost_leaf(evidence)
    if made is None:
        return
    again = made.location == line
    yield Draft(
        title="The gradient is None: its tensor is not a leaf",
        culprit=made.location,
        victim=line,
        explanation=[
            "This line reads .grad, which is None:",
            line,
            "It computed that tensor itself, one iteration earlier."
            if again
            else "This line makes a leaf and computes another tensor from it:",
            None if again else made,
            "The result has a graph, and backward stores no gradient in it. The leaf that got the "
            "gradient is lost.",
        ],
        fix="with torch.no_grad():\n    weight -= rate * weight.grad"
        if again
        else "weight = (torch.randn(3) * 0.1).requires_grad_()",
        confidence="likely",
        evidence=(evidence.analysis.error, made),
    )


def _read_gradients(line: SourceLocation) -> set[str]:
    """Return the expressions whose ``.grad`` a line reads, as in source."""
    return {
        ast.unparse(part.value)
        for node in source.simple_statements(line)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr == "grad"
    }


def _rebound(evidence: Evidence, line: SourceLocation | None, names: set[str]) -> Op | None:
    """Return the op of a line that assigned its result to a name whose gradient it reads."""
    if line is None:
        return None
    assigned = {
        ast.unparse(target)
        for node in source.simple_statements(line)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    if not assigned & names:
        return None
    ops = (op for op in evidence.analysis.ops if op.location == line and op.sequence_nr is not None)
    return next(ops, None)


def _from_lost_leaf(evidence: Evidence) -> Op | None:
    """Return an op on a leaf that the same line created, which therefore has no name."""
    creators = evidence.analysis.creators
    for op in evidence.analysis.ops:
        if op.sequence_nr is None or op.location is None or op.phase != "forward":
            continue
        made = (creators.get(each.storage_id) for each in op.inputs if each.storage_id is not None)
        if "requires_grad" in _text(op.location) and any(
            each is not None and each.sequence_nr is None and each.location == op.location
            for each in made
        ):
            return op
    return None


def _text(line: SourceLocation) -> str:
    return source.location(line.filename, line.lineno, line.function).text
