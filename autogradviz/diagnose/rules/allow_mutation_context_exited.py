"""Backward ran after ``allow_mutation_on_saved_tensors`` had been exited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.failed_unpack import failed_save
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "mutation-context-left",
    mechanism="free",
    when=ErrorMessage("'allow_mutation_on_saved_tensors' context"),
    group="backward raised",
)
def mutation_context_left(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the backward outside the context."""
    saved, unpack, name, victim = failed_save(evidence)
    culprit = evidence.raised_at()
    yield Draft(
        title="Backward ran outside allow_mutation_on_saved_tensors",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name} was saved inside allow_mutation_on_saved_tensors():",
            victim,
            "The context keeps the originals and their clones, and releases them at its end. "
            "This backward came later:",
            culprit,
        ],
        fix="with allow_mutation_on_saved_tensors():\n    loss = forward(...)\n    loss.backward()",
        confidence="certain",
        evidence=(saved, unpack, evidence.analysis.error),
        region_id=saved.region_id if saved is not None else None,
    )
