"""Lines that set ``requires_grad`` of a tensor."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import RequiresGradChanged

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow


def requires_grad_writes(filename: str, *, on: bool) -> list[tuple[int, str]]:
    """Return line and function of the statements that may set ``requires_grad`` to ``on``."""
    return sorted(
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if function.rpartition(".")[2] != "__init__"
        and isinstance(node, (ast.Call, ast.Assign))
        and _sets(node, on=on)
    )


def find_requires_grad_write(window: RecomputeWindow, *, on: bool) -> SourceLocation | None:
    """Return the line that set ``requires_grad`` in a window: recorded, else from the source."""
    evidence = window.evidence
    for event in evidence.analysis.log.of(RequiresGradChanged):
        within = window.region.entered_seq < event.seq < window.recomputation.started_seq
        if within and event.requires_grad == on and event.stack_id is not None:
            return evidence.analysis.location(event.stack_id)
    return best_line(
        (
            LineCandidate(filename, line, function, window.ran_in_window(filename, function, line))
            for filename in evidence.user_files
            for line, function in requires_grad_writes(filename, on=on)
        ),
        at_least=0,
    )


def _sets(node: ast.Call | ast.Assign, *, on: bool) -> bool:
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        named = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
    else:
        named = isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_"
        given = [*node.args, *[word.value for word in node.keywords]]
        value = given[0] if given else ast.Constant(value=True)
    return named and not (isinstance(value, ast.Constant) and value.value is not on)
