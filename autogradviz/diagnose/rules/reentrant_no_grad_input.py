"""Regions of the reentrant kind that autograd does not follow: what is inside learns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import Always, rule
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


REENTRANT_NO_GRAD_INPUT_PAGE: Final = Page(
    slug="reentrant-no-grad-input",
    title="No input of a reentrant checkpoint requires a gradient",
    means="""For autograd a reentrant region is one node, and it is made only where an argument
    requires a gradient. Without one the parameters inside get none. PyTorch warns once.""",
    happens="""The first block of a network is checkpointed: its input is plain data. Tensors in
    lists, dicts and objects do not count as arguments.""",
    fix="""Use use_reentrant=False, which has none of these limits; or call x.requires_grad_() on
    the input.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

head = torch.nn.Linear(3, 1)
with autogradviz.record(net) as trace:
    h = checkpoint(net, torch.rand(2, 3), use_reentrant=True)  # <-- named
    head(h).sum().backward()
""",
)
REENTRANT_NESTED_RESULTS_PAGE: Final = Page(
    slug="reentrant-nested-results",
    title="All that a reentrant region returns lies inside a list or dict",
    means="""A reentrant checkpoint follows what it returns where that is a tensor or a tuple of
    tensors. In a list, a dict or an object nothing is followed: no gradient, no error.""",
    happens="""The checkpointed function returns a dict or a dataclass of tensors.""",
    fix="""Use use_reentrant=False, which has none of these limits, or return a tuple.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

def features(x):
    return {"h": net(x)}


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    h = checkpoint(features, x, use_reentrant=True)["h"]  # <-- named
    (h.sum() + x.sum()).backward()
""",
)


@rule(
    "reentrant-no-grad-input",
    "reentrant-nested-results",
    when=Always(),
    priority=120,
    pages=(REENTRANT_NO_GRAD_INPUT_PAGE, REENTRANT_NESTED_RESULTS_PAGE),
    at_most=None,
)
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
