"""A checkpointed region drew other random numbers when it was recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.find_recompute_cause import random_cause
from autogradviz.diagnose.evidence.recompute_value_diff import (
    first_affected_line,
    may_agree,
    values_agree,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import in_module, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "checkpoint-random-not-restored",
    "checkpoint-random-state",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint-captured-tensor-mutated",
)
def checkpoint_random_not_restored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region whose first recomputation drew other random numbers."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations[:1]:
            cause = random_cause(evidence, region, recomputation)
            if cause is None or values_agree(region, recomputation):
                continue
            # Only fingerprints show whether a number drawn in Python reached a tensor.
            unsure = cause.slug == "checkpoint-random-state" and may_agree(region, recomputation)
            yield Draft(
                slug=cause.slug,
                title=f"{cause.title}{in_module(region.module)}",
                culprit=cause.culprit,
                victim=first_affected_line(region, recomputation) or cause.victim,
                explanation=[
                    f"The checkpointed region {region.function}{in_module(region.module)} "
                    f"({short_location(region.location)}) drew other random numbers when it was "
                    "recomputed; its gradients belong to those.",
                    *cause.lines,
                    "Shapes are the same, so checkpoint did not notice."
                    + (" record(fingerprints=True) shows whether values differ." * unsure),
                ],
                fix=cause.fix,
                confidence="hint" if unsure else cause.confidence,
                evidence=(*cause.events, recomputation),
            )
