"""A region changes something in Python besides computing, and its recomputation did so again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.counter_branch import find_counter_branch
from autogradviz.diagnose.blame.state_paths import attribute_name, base_name
from autogradviz.diagnose.blame.state_write import find_writer
from autogradviz.diagnose.blame.window import RecomputeWindow
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.events import EffectRepeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("checkpoint-effect-repeated", when=NoError(), priority=210, at_most=None, only_new_lines=True)
def find_python_effects(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first container that grew twice, or number that moved on twice."""
    runs = {
        again.recompute_id: (region, again)
        for region in evidence.analysis.regions
        for again in region.recomputations
    }
    for event in evidence.analysis.log.of(EffectRepeated):
        found = runs.get(event.recompute_id) if event.recompute_id is not None else None
        if found is not None and _accumulates(event):
            yield _describe(evidence, *found, event)
            return


def _accumulates(event: EffectRepeated) -> bool:
    """Return whether a container grew, or a number rose or fell: what is just set anew does not."""
    before, after = event.before_number, event.after_number
    if before is None or after is None:
        return False
    grew = event.value_kind == "container" and event.change_kind == "size" and after > before
    return grew or (event.value_kind == "plain" and event.change_kind == "value")


def _describe(
    evidence: Evidence, region: Region, again: Recomputation, event: EffectRepeated
) -> Finding:
    name = base_name(event.state_path)
    window = RecomputeWindow(evidence, region, again)
    culprit = (
        evidence.analysis.location(event.stack_id)
        if event.stack_id is not None
        else find_writer(window, event, in_forward=True)
    )
    last = region.saved[-1].location if region.saved else region.location
    number = event.value_kind == "plain"
    decides = find_counter_branch(window, attribute_name(event.state_path)) if number else None
    return Finding(
        slug="checkpoint-effect-repeated",
        title=f"{name} was changed twice: in forward and again in recomputation",
        culprit=culprit,
        victim=last,
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} "
                f"({short(region.location)}) changes {name}, which outlives it:",
                quoted(culprit),
                f"It was {event.before} when the forward began, and {event.after} after backward "
                "had recomputed the region: a checkpointed region runs twice, and so does "
                "everything that it does besides computing.",
                "Gradients need not be wrong; what is counted or collected is.",
                "What the region computes depends on it, though:" if decides is not None else "",
                quoted(decides),
            ]
        ),
        fix=f"# count and collect outside the region: return what {name} needs\n"
        "# from it, and write it in the caller",
        confidence="likely" if decides is not None else "hint",  # a mere report does no harm
        events=(region.entered_seq, again.started_seq, event.seq),
        region_id=region.region_id,
    )
