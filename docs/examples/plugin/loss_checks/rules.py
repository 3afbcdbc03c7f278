"""The rules of this package; an entry point in ``pyproject.toml`` names this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.plugins import Draft, NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.plugins import Evidence


@rule("softmax-applied-twice", mechanism="change", when=NoError(), needs={"ops"})
def softmax_applied_twice(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first loss whose logits are the result of a softmax."""
    softmaxes = {}
    for op in evidence.analysis.ops:
        if op.name == "_softmax":
            softmaxes[op.outputs[0].tensor_id] = op
        elif op.name == "_log_softmax" and op.inputs[0].tensor_id in softmaxes:
            first = softmaxes[op.inputs[0].tensor_id]
            yield Draft(
                title="Softmax is applied twice",
                culprit=first,
                victim=op,
                explanation=[
                    "This line computes probabilities:",
                    first,
                    "The loss takes logits, and applies a softmax itself:",
                    op,
                ],
                fix="loss = cross_entropy(logits, target)  # without softmax",
                confidence="likely",
                evidence=(first, op),
            )
