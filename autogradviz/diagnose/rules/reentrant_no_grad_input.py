"""Reentrant regions without a node: the parameters inside get no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.reentrant_regions import REENTRANT_FIX
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import BackwardStarted, ParameterSeen, RegionCutOff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.facts import Evidence


_SLUGS: Final = {"arguments": "reentrant-no-grad-input", "results": "reentrant-nested-results"}
_REASONS: Final = {
    "arguments": "None of its positional arguments is a tensor that requires grad. A reentrant "
    "checkpoint sees no tensors in lists, tuples and dicts, and not the parameters that the region "
    "uses.",
    "results": "Every tensor that it returns is inside a list or dict. A reentrant checkpoint "
    "runs the region without gradients and tracks only a tensor, or a tuple of tensors.",
}


@rule(
    "reentrant-no-grad-input",
    "reentrant-nested-results",
    mechanism="cut",
    when=Always(),
    group="region",
    needs={"ops"},
)
def reentrant_no_grad_input(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region without a node that uses a trainable parameter."""
    analysis = evidence.analysis
    backwards = analysis.log.of(BackwardStarted)
    regions = {region.region_id: region for region in analysis.regions}
    trainable = storages(
        analysis.tensors[event.tensor_id]
        for event in analysis.log.of(ParameterSeen)
        if event.requires_grad
    )
    for event in analysis.log.of(RegionCutOff):
        region = regions.get(event.region_id)
        if region is None or not any(b.seq > event.seq for b in backwards):
            continue
        reader = next((op for op in region.ops if storages(op.inputs) & trainable), None)
        if reader is not None:
            yield _draft(evidence, region, reader, event)


def _draft(evidence: Evidence, region: Region, reader: Op, event: RegionCutOff) -> Draft:
    names = (evidence.name_of(t.storage_id) for t in reader.inputs if t.storage_id is not None)
    name = next((name for name in names if name), "a parameter")
    return Draft(
        slug=_SLUGS[event.cut_off],
        title=f"No parameter inside {region.module or region.function} gets a gradient",
        culprit=region,
        victim=reader,
        explanation=[
            f"The region {region.function}{in_module(region.module)} is checkpointed with "
            "use_reentrant=True:",
            region,
            _REASONS[event.cut_off],
            f"So autograd made no node for it. Inside, {reader.name} at "
            f"{short_location(reader.location)} uses {name}, which requires grad, but gets no "
            "gradient through this region; nor do earlier operators:",
            reader,
            "Nothing was raised: PyTorch only warns.",
        ],
        fix=REENTRANT_FIX,
        confidence="certain",
        evidence=(region, event),
    )
