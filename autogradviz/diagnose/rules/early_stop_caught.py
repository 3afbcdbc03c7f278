"""The exception that ends a recomputation early was caught inside the region."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import in_module, paragraphs, quote_source
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import ErrorMessage, rule
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_MESSAGE: Final = "target_frame.early_stop is set"
_BROAD: Final = frozenset({"Exception", "BaseException"})


PAGE: Final = Page(
    slug="checkpoint-early-stop-caught",
    title="What ends a recomputation was caught inside the region",
    means="""Once a recomputation has saved again all that backward needs, checkpoint raises an
    exception of its own to end it. The region's code caught that one too and went on.""",
    happens="""A broad ``except Exception`` or a bare ``except`` inside a checkpointed function,
    often around a fast kernel with a slow one to fall back on.""",
    fix="""Catch what the kernel raises and nothing else; or switch early stop off around the
    backward with set_checkpoint_early_stop(False).""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

def block(x):
    try:
        return x.sin().exp()
    except Exception:  # <-- named
        return x.cos()


with autogradviz.record() as trace:
    x = torch.rand(3, requires_grad=True)
    checkpoint(block, x, use_reentrant=False).sum().backward()
""",
)


@rule(
    "checkpoint-early-stop-caught",
    when=ErrorMessage(_MESSAGE),
    priority=50,
    pages=(PAGE,),
    at_most=None,
)
def find_swallowed(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where checkpoint wonders that a recomputation went on to its end."""
    error = evidence.analysis.error
    if error is None or _MESSAGE not in error.message:
        return
    rerun = [region for region in evidence.analysis.regions if region.recomputations]
    if rerun:
        yield _describe(evidence, max(rerun, key=lambda r: r.recomputations[-1].started_seq))


def _describe(evidence: Evidence, region: Region) -> Finding:
    error = evidence.analysis.error
    last = region.saved[-1] if region.saved else None
    victim = last.location if last is not None else region.location
    culprit = _caught(evidence, last.op.stack_id if last is not None and last.op else None)
    return Finding(
        slug="checkpoint-early-stop-caught",
        title=f"What ends the recomputation of {region.function} was caught inside it",
        culprit=culprit or region.location,
        victim=victim,
        explanation=paragraphs(
            [
                f"Backward recomputed the region {region.function}{in_module(region.module)}:",
                quote_source(region.location),
                "Once all that backward needs was saved again, here, checkpoint raises an "
                "exception of its own to end the recomputation:",
                quote_source(victim),
                "This caught it, and the region went on:" if culprit is not None else "",
                quote_source(culprit),
            ]
        ),
        fix=(
            "# catch what you expect, and nothing else:\n"
            "except (NotImplementedError, ValueError):\n"
            "# or, around the backward:\n"
            "with torch.utils.checkpoint.set_checkpoint_early_stop(False):"
        ),
        confidence="likely",
        events=(region.entered_seq, *((error.seq,) if error is not None else ())),
        region_id=region.region_id,
    )


def _caught(evidence: Evidence, stack_id: int | None) -> SourceLocation | None:
    """Return the innermost handler that catches every exception, around a call in a stack."""
    for place in evidence.analysis.stack(stack_id):
        if place.filename in evidence.user_files:
            for function, owner in source.functions(place.filename):
                lines = [n.lineno for n in source.own_nodes(owner)
                         if isinstance(n, ast.Try) for n in _broad(n, place.lineno)]  # fmt: skip
                if lines:
                    return source.location(place.filename, lines[-1], function)
    return None


def _broad(node: ast.Try, lineno: int) -> Iterator[ast.ExceptHandler]:
    """Yield the first handler of a ``try`` around a line that catches whatever is raised."""
    inside = node.body[0].lineno <= lineno <= (node.body[-1].end_lineno or 0)
    for handler in node.handlers if inside else ():
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", "") in _BROAD for kind in kinds):
            yield handler
            return
