"""``Proof``: the answer of an experiment about a finding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from autogradviz.diagnose.finding import CONFIDENCES

if TYPE_CHECKING:
    from autogradviz.diagnose.finding import Finding

ProofAnswer: TypeAlias = Literal["proved", "not cured", "cannot tell"]
"""The three answers to: is this line the cause?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The answer of an experiment: the step ran again with the cause of a finding undone.

    Attributes:
        answer: "proved", "not cured" or "cannot tell".
        reason: one clause with numbers: the step without the cause, or why nothing is known.
        finding: the finding with the confidence that follows. What is proved and raised an
            exception, or computed gradients that do not agree with the step's own operators, is
            certain. What is not cured is one level less certain. A hint about a line that may mean
            what it does is proved only if the step shows that something is wrong, and stays a hint.
        runs: how often the step ran.

    Example:
        >>> weight = torch.rand(3, requires_grad=True)
        >>> def step():
        ...     y = weight.exp()
        ...     loss = y.sum()
        ...     y.mul_(2)
        ...     loss.backward()
        >>> autogradviz.prove(step).answer
        'proved'
    """

    answer: ProofAnswer
    reason: str
    finding: Finding
    runs: int

    def __str__(self) -> str:
        return f"{self.answer}: {self.reason}"


def revised(finding: Finding, answer: ProofAnswer, reason: str, *, is_wrong: bool) -> Finding:
    """Return a finding with the confidence that follows from an experiment.

    Args:
        finding: the finding.
        answer: of the experiment.
        reason: one clause.
        is_wrong: the step raised, or its gradients are not those of its own operators.
    """
    confidence = finding.confidence
    if answer == "proved" and is_wrong:
        confidence = CONFIDENCES[0]
    if answer == "not cured":
        at = min(CONFIDENCES.index(confidence) + 1, len(CONFIDENCES) - 1)
        confidence = CONFIDENCES[at]
    text = f"{finding.explanation}\n\n{answer.capitalize()}: {reason}."
    if answer == "cannot tell":
        text = finding.explanation
    return replace(finding, confidence=confidence, explanation=text)
