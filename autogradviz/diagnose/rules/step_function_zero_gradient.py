"""Gradients that are exactly zero behind a step function: a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.gradient_norms import weight_gradients
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence

_STEP_FUNCTIONS: Final = frozenset({"RoundBackward", "SignBackward", "FloorBackward",
                                    "CeilBackward", "TruncBackward", "SgnBackward",
                                    "BernoulliBackward"})  # fmt: skip


@rule("gradient-zero", when=NoError(), needs={"ops"})
def gradient_zero(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if weights have gradients of zeros and a step function ran in backward."""
    nodes = evidence.analysis.graph.nodes.values()
    step = next(
        (n for n in nodes if n.name.rstrip("0123456789") in _STEP_FUNCTIONS and n.runs), None
    )
    zeros = [gradient for gradient in weight_gradients(evidence) if gradient.size == 0]
    if step is None or not zeros:
        return
    name = step.op.name if step.op is not None else step.name
    weights = [gradient.name for gradient in zeros]
    subject, them = (weights[0], "it") if len(weights) == 1 else (f"{len(weights)} weights", "them")
    yield Draft(
        title=f"{subject} got a gradient of zeros: {name} has zero gradient everywhere",
        culprit=step,
        victim=zeros[0].first,
        explanation=[
            f"{join_names(weights)}: every entry of the gradient is 0.",
            f"The loss depends on {them} through {name}, which is constant between its steps, so "
            "its gradient is 0:",
            step,
        ],
        fix="x + (x.round() - x).detach()  # straight-through: the gradient of x",
        confidence="hint",
        evidence=(zeros[0].seq, step),
    )
