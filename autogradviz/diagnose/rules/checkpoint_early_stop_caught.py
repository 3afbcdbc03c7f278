"""The exception that ends a recomputation early was caught inside the region."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import in_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_MESSAGE: Final = "target_frame.early_stop is set"
_BROAD: Final = frozenset({"Exception", "BaseException"})


@rule(
    "checkpoint-early-stop-caught",
    mechanism="diverge",
    when=ErrorMessage(_MESSAGE),
    group="recomputation raised",
    after="checkpoint-different-number",
)
def early_stop_caught(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the region whose recomputation ran on after the early stop."""
    recomputed = [region for region in evidence.analysis.regions if region.recomputations]
    if not recomputed:
        return
    region = max(recomputed, key=lambda r: r.recomputations[-1].started_seq)
    last = region.saved[-1] if region.saved else None
    victim = last.location if last is not None else region.location
    culprit = _broad_handler(evidence, last.op.stack_id if last is not None and last.op else None)
    yield Draft(
        title=f"The exception that ends the recomputation of {region.function} was caught inside "
        "the region",
        culprit=culprit or region,
        victim=victim,
        explanation=[
            f"Backward recomputed the region {region.function}{in_module(region.module)}:",
            region,
            "When the last tensor that backward needs was saved, here, checkpoint raised an "
            "internal exception to end the recomputation:",
            victim,
            "This handler caught it, and the region went on:" if culprit is not None else "",
            culprit,
        ],
        fix=(
            "# catch only the exceptions that you expect:\n"
            "except (NotImplementedError, ValueError):\n"
            "# or, around the backward:\n"
            "with torch.utils.checkpoint.set_checkpoint_early_stop(False):"
        ),
        confidence="likely",
        evidence=(region, evidence.analysis.error),
    )


def _broad_handler(evidence: Evidence, stack_id: int | None) -> SourceLocation | None:
    """Return the innermost handler on a stack that catches every exception."""
    for place in evidence.analysis.stack(stack_id):
        if place.filename in evidence.user_files:
            for function, owner in source.functions(place.filename):
                lines = [n.lineno for n in source.own_nodes(owner)
                         if isinstance(n, ast.Try) for n in _broad(n, place.lineno)]  # fmt: skip
                if lines:
                    return source.location(place.filename, lines[-1], function)
    return None


def _broad(node: ast.Try, lineno: int) -> Iterator[ast.ExceptHandler]:
    """Yield the first handler that catches every exception, if a ``try`` contains a line."""
    inside = node.body[0].lineno <= lineno <= (node.body[-1].end_lineno or 0)
    for handler in node.handlers if inside else ():
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", "") in _BROAD for kind in kinds):
            yield handler
            return
