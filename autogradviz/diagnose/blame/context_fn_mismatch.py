"""A ``context_fn`` that returns different contexts for forward and recomputation."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.recompute_cause_record import Cause
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow
    from autogradviz.diagnose.evidence.facts import Evidence

_CONTEXTS: Final = re.compile(
    r"autocast|context|ctx|no_grad|mode|kernel|guard|policy", re.IGNORECASE
)


def find_unequal_contexts(window: RecomputeWindow) -> Cause | None:
    """Return the line that creates different contexts for the two runs of a region."""
    evidence, region = window.evidence, window.region
    if any(op.policy for op in region.ops):  # selective checkpoint: two modes of one policy
        return None
    culprit = next(_unequal_pairs(evidence), None) if _has_context_fn(region) else None
    if culprit is None:
        return None
    return Cause(
        slug="checkpoint-context-missing",
        title="context_fn returned different contexts for its two runs",
        culprit=culprit,
        lines=(
            "No recorded state differs between the two runs. The region has a context_fn: the "
            "first context is for forward, the second for recomputation. They are created at "
            f"{short_location(culprit)}:",
            f"        {culprit.text}",
        ),
        fix="# give both runs the same context:\nreturn make_context(), make_context()",
        confidence="likely",
        events=(),
    )


def _has_context_fn(region: Region) -> bool:
    """Return whether the call of ``checkpoint`` passes, or may pass, ``context_fn``."""
    place = region.location
    return place is not None and any(
        word.arg in {"context_fn", None}
        for _, node in source.nodes(place.filename)
        if isinstance(node, ast.Call)
        and node.lineno <= place.lineno <= (node.end_lineno or node.lineno)
        for word in node.keywords
    )


def _unequal_pairs(evidence: Evidence) -> Iterator[SourceLocation]:
    """Yield the lines at which a user function returns two different contexts."""
    for filename in evidence.user_files:
        for function, owner in source.functions(filename):
            for node in source.own_nodes(owner):
                if isinstance(node, (ast.Return, ast.Lambda)) and _is_unequal(_returned(node)):
                    yield source.location(filename, node.lineno, function)


def _returned(node: ast.Return | ast.Lambda) -> ast.expr | None:
    return node.body if isinstance(node, ast.Lambda) else node.value


def _is_unequal(value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Tuple) or len(value.elts) != 2:  # noqa: PLR2004
        return False
    first, second = (ast.unparse(part) for part in value.elts)
    calls = [ast.unparse(part.func) for part in value.elts if isinstance(part, ast.Call)]
    return first != second and any(_CONTEXTS.search(called) for called in calls)
