"""Which line switched ``requires_grad`` of a tensor."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.window import RecomputeWindow
from autogradviz.diagnose.source import index as source
from autogradviz.events import RequiresGradChanged

if TYPE_CHECKING:
    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def toggles(filename: str, *, on: bool) -> list[tuple[int, str]]:
    """Return line and function of what may switch ``requires_grad`` on, or off."""
    return sorted(
        (node.lineno, function)
        for function, owner in source.functions(filename)
        if function.rpartition(".")[2] != "__init__"
        for node in source.own_nodes(owner)
        if isinstance(node, (ast.Call, ast.Assign)) and _switches(node, on=on)
    )


def find_toggle(
    evidence: Evidence, region: Region, again: Recomputation, *, on: bool
) -> SourceLocation | None:
    """Return the line that switched a tensor between a region's two runs: seen, else read."""
    for event in evidence.analysis.log.of(RequiresGradChanged):
        within = region.entered_seq < event.seq < again.started_seq
        if within and event.requires_grad == on and event.stack_id is not None:
            return evidence.analysis.location(event.stack_id)
    between = RecomputeWindow(evidence, region, again)
    found = [
        (-between.outside(filename, function, line), filename, line, function)
        for filename in evidence.user_files
        for line, function in toggles(filename, on=on)
    ]
    return source.location(*min(found)[1:]) if found else None


def _switches(node: ast.Call | ast.Assign, *, on: bool) -> bool:
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        named = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
    else:
        named = isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_"
        given = [*node.args, *[word.value for word in node.keywords]]
        value = given[0] if given else ast.Constant(value=True)
    return named and not (isinstance(value, ast.Constant) and value.value is not on)
