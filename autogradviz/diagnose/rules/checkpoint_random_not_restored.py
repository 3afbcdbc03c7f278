"""A checkpointed region drew other random numbers when it was recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.find_recompute_cause import random_cause
from autogradviz.diagnose.evidence.recompute_value_diff import (
    first_affected_line,
    may_agree,
    values_agree,
)
from autogradviz.diagnose.explain_page import Page
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import in_module, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence

NOT_RESTORED: Final = Page(
    slug="checkpoint-random-not-restored",
    title="Dropout or another random operator differed in the recomputation",
    means="""The region drew random numbers with preserve_rng_state=False, so the recomputation
    drew others: the gradient belongs to another dropout mask than the loss. Nothing is raised.""",
    happens="""preserve_rng_state=False is set for speed, and dropout is inside the region.""",
    fix="""Use preserve_rng_state=True, or move the random part out of the region.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

def noisy(x):
    return torch.nn.functional.dropout(x.sin(), 0.5).cos()


x = torch.rand(64, requires_grad=True)
with autogradviz.record() as trace:
    y = checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=False)  # <-- named
    y.sum().backward()
""",
)
PYTHON_RANDOM: Final = Page(
    slug="checkpoint-random-state",
    title="The recomputation drew another number from Python's or NumPy's generator",
    means="""Checkpoint restores PyTorch's random state, but not that of Python's random module or
    of NumPy. The second draw gave another number, and the recomputation failed or computed
    something else.""",
    happens="""random.random(), random.choice() or numpy.random inside the region.""",
    fix="""Draw outside the region and pass the number as an argument, or draw with torch.rand.""",
    example="""
import random

import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

scales = [torch.ones(3)]


def scaled(x):
    return (x * scales[int(random.random() > 0.9)]).sin()  # <-- named


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    random.seed(0)
    y = checkpoint(scaled, x, use_reentrant=False)
    random.seed(2)
    y.sum().backward()
""",
)


@rule(
    "checkpoint-random-not-restored",
    "checkpoint-random-state",
    when=NoError(),
    priority=160,
    pages=(NOT_RESTORED, PYTHON_RANDOM),
)
def checkpoint_random_not_restored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region whose first recomputation drew other random numbers."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations[:1]:
            cause = random_cause(evidence, region, recomputation)
            if cause is None or values_agree(region, recomputation):
                continue
            # Only fingerprints show whether a number drawn in Python reached a tensor.
            unsure = cause.slug == PYTHON_RANDOM.slug and may_agree(region, recomputation)
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
