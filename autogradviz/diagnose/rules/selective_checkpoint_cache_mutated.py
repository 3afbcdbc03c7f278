"""A tensor that a selective policy kept was written before the recomputation took it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import in_module, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence

_MESSAGE: Final = "cached during selective activation checkpoint has been mutated"


@rule(
    "selective-cache-mutated",
    mechanism="write",
    when=ErrorMessage(_MESSAGE),
    group="operation refused",
)
def selective_cache_mutated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the write to a tensor that the policy saved."""
    error = evidence.analysis.error
    saved = [
        (r, op) for r in evidence.analysis.regions for op in r.ops if op.policy.endswith("save")
    ]
    if error is None or not saved:
        return
    writes = (
        (region, op, write)
        for region, op in saved
        for result in op.outputs
        for write, _ in evidence.overwrites(result, op.seq, error.seq)
    )
    region, op, write = next(writes, (*saved[-1], None))
    text = write.location.text if write is not None and write.location is not None else ""
    yield Draft(
        title=f"The result of {op.name}, which the policy saved, was written in place",
        culprit=write,
        victim=op,
        explanation=[
            f"The policy of the region {region.function}{in_module(region.module)} "
            f"({short_location(region.location)}) saves the result of {op.name}:",
            op,
            f"Then {write.name if write is not None else 'an op that was not recorded'} wrote it:",
            write,
            "Recomputation would have continued from the written tensor, so PyTorch stopped.",
        ],
        fix="# make a new tensor instead of writing in place, or let the policy recompute it;\n"
        f"# instead of: {text or 'the write in place'}",
        evidence=(op, write, error),
        region_id=region.region_id,
    )
