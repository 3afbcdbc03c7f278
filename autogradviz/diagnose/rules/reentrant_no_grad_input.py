"""Regions of the reentrant kind that autograd does not follow: what is inside learns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.events import BackwardStarted, ParameterSeen, RegionCutOff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.facts import Evidence

_SLUGS: Final = {"arguments": "reentrant-no-grad-input", "results": "reentrant-nested-results"}
_REASONS: Final = {
    "arguments": "No tensor among its positional arguments requires grad. A reentrant checkpoint "
    "sees tensors there only: not those in lists, tuples and dicts, and not the parameters that "
    "the region uses.",
    "results": "Every tensor that it returns lies inside a list or dict. A reentrant checkpoint "
    "runs the region without gradients and follows a tensor, or a tuple of tensors, only.",
}


def find_cut_off(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first such region that holds something to learn."""
    backwards = evidence.analysis.log.of(BackwardStarted)
    regions = {region.region_id: region for region in evidence.analysis.regions}
    trainable = _trainable(evidence)
    for event in evidence.analysis.log.of(RegionCutOff):
        region = regions.get(event.region_id)
        if region is None or not any(b.seq > event.seq for b in backwards):
            continue
        reader = _first_reader(region, trainable)
        if reader is not None:
            yield _describe(evidence, region, reader, event)
            return


def _trainable(evidence: Evidence) -> set[int]:
    """Return the storages of parameters that require grad."""
    storages = (
        evidence.analysis.tensors[event.tensor_id].storage_id
        for event in evidence.analysis.log.of(ParameterSeen)
        if event.requires_grad
    )
    return {storage_id for storage_id in storages if storage_id is not None}


def _first_reader(region: Region, trainable: set[int]) -> Op | None:
    return next(
        (op for op in region.ops if any(t.storage_id in trainable for t in op.inputs)), None
    )


def _describe(evidence: Evidence, region: Region, reader: Op, event: RegionCutOff) -> Finding:
    names = (evidence.name_of(t.storage_id) for t in reader.inputs if t.storage_id is not None)
    name = next((name for name in names if name), "a parameter")
    return Finding(
        slug=_SLUGS[event.cut_off],
        title=f"Nothing inside {region.module or region.function} gets a gradient",
        culprit=region.location,
        victim=reader.location,
        explanation=fit(
            [
                f"The region {region.function}{where(region.module)} is checkpointed with "
                "use_reentrant=True:",
                quoted(region.location),
                _REASONS[event.cut_off],
                f"So autograd made no node for it. Inside, {reader.name} at "
                f"{short(reader.location)} uses {name}, which requires grad, and gets none through "
                "this region; nor does what comes before it:",
                quoted(reader.location),
                "Nothing was raised: PyTorch only warns.",
            ]
        ),
        fix="checkpoint(function, *args, use_reentrant=False)",
        confidence="certain",
        events=(region.entered_seq, event.seq),
        region_id=region.region_id,
    )
