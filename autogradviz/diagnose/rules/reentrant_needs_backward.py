"""``torch.autograd.grad`` or ``backward(inputs=...)`` through a reentrant checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.reentrant_regions import REENTRANT_FIX, REENTRANT_NODE
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import in_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "reentrant-needs-backward",
    mechanism="cut",
    when=ErrorMessage(
        ("incompatible with .grad()", "Checkpointing is not compatible with .grad()")
    ),
    group="backward raised",
)
def reentrant_needs_backward(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the region whose node failed, else for the first reentrant region."""
    nodes = [n for n in evidence.analysis.graph.nodes.values() if n.name == REENTRANT_NODE]
    failed = next((n for n in nodes if n.state == "failed"), None) or next(iter(nodes), None)
    victim = evidence.raised_at()
    yield Draft(
        title="A reentrant checkpoint cannot be differentiated by torch.autograd.grad",
        culprit=failed,
        victim=victim,
        explanation=[
            f"This region{in_module(failed.module if failed else '')} is checkpointed with "
            "use_reentrant=True:",
            failed,
            "Its backward runs a nested backward that accumulates into .grad, so it works with "
            "loss.backward() only, and without inputs=. Here the gradients of chosen inputs are "
            "computed:",
            victim,
        ],
        fix=REENTRANT_FIX,
        evidence=(evidence.analysis.error, failed),
    )
