"""Two backwards in one ``GraphExecGroup`` need the same saved tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.failed_unpack import failed_save
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "exec-group-overlap",
    mechanism="free",
    when=ErrorMessage("Performing two backward calls that overlap"),
    group="backward raised",
)
def exec_group_overlap(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the second backward over one region in a ``GraphExecGroup``."""
    saved, unpack, name, victim = failed_save(evidence)
    culprit = evidence.raised_at()
    yield Draft(
        title=f"Two backwards in one GraphExecGroup both need {name}",
        culprit=culprit,
        victim=victim,
        explanation=[
            "Inside a GraphExecGroup a checkpointed region is recomputed once, and each recomputed "
            "tensor can be unpacked once.",
            f"An earlier backward unpacked {name}:",
            victim,
            "This backward runs over the same region and unpacks it again:",
            culprit,
        ],
        fix="# add the losses and call backward() once:\n"
        "(loss_a + loss_b).backward()\n"
        "# or leave the GraphExecGroup and keep retain_graph=True on the first backward",
        confidence="certain",
        evidence=(saved, unpack, evidence.analysis.error),
        region_id=saved.region_id if saved is not None else None,
    )
