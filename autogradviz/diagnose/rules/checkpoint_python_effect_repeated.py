"""Side effects in Python that recomputation repeats: a list that grows, a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.branch_on_counter import find_counter_branch
from autogradviz.diagnose.blame.code_run_between import RecomputeWindow
from autogradviz.diagnose.blame.find_state_writer import find_writer
from autogradviz.diagnose.blame.state_paths import attribute_name, base_name
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import describe_region
from autogradviz.events import EffectRepeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "checkpoint-effect-repeated",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="gradient-counted-twice",
    only_new_lines=True,
)
def checkpoint_side_effects(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first container that grew twice, or number that changed twice."""
    runs = {
        again.recompute_id: (region, again)
        for region in evidence.analysis.regions
        for again in region.recomputations
    }
    for event in evidence.analysis.log.of(EffectRepeated):
        found = runs.get(event.recompute_id) if event.recompute_id is not None else None
        if found is not None and _accumulates(event):
            yield _draft(evidence, *found, event)


def _accumulates(event: EffectRepeated) -> bool:
    """Return whether a container grew or a number changed; equal assignments are harmless."""
    before, after = event.before_number, event.after_number
    if before is None or after is None:
        return False
    grew = event.value_kind == "container" and event.change_kind == "size" and after > before
    return grew or (event.value_kind == "plain" and event.change_kind == "value")


def _draft(
    evidence: Evidence, region: Region, again: Recomputation, event: EffectRepeated
) -> Draft:
    name = base_name(event.state_path)
    window = RecomputeWindow(evidence, region, again)
    culprit = (
        evidence.analysis.location(event.stack_id)
        if event.stack_id is not None
        else find_writer(window, event, in_forward=True)
    )
    number = event.value_kind == "plain"
    branch = find_counter_branch(window, attribute_name(event.state_path)) if number else None
    return Draft(
        title=f"{name} was changed twice: in forward and again in recomputation",
        culprit=culprit,
        victim=region.saved[-1] if region.saved else region,
        explanation=[
            f"{describe_region(region)} changes {name}, which outlives it:",
            culprit,
            f"It was {event.before} when the forward started, and {event.after} after backward "
            "had recomputed the region: a checkpointed region runs twice, with all its side "
            "effects.",
            "Gradients may be right; the count or the collection is wrong.",
            "A branch of the region depends on it:" if branch is not None else "",
            branch,
        ],
        fix=f"# count and collect outside the region: return the values that {name} needs\n"
        "# from it, and write it in the caller",
        # A report that no computation reads does no harm.
        confidence="likely" if branch is not None else "hint",
        evidence=(region, again, event),
    )
