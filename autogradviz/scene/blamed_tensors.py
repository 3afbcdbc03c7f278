"""The saved tensors that every view marks as wrong: those of the findings, and broken versions."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Region, SavedTensor
    from autogradviz.diagnose.finding import Finding


def find_blamed(analysis: Analysis, findings: Sequence[Finding]) -> frozenset[int]:
    """Return the ids of the saved tensors that are not what the forward saved.

    These are tensors at a different version, tensors of a finding's first node that the finding's
    events show, and the first tensor that differs in a recomputation. A failed unpack is blamed
    only if no finding explains it: it may have started a recomputation that failed elsewhere.
    """
    blamed = {saved.saved_id for saved in analysis.saved.values() if saved.broken}
    explained = False
    regions = {region.region_id: region for region in analysis.regions}
    for finding in findings:
        if finding.confidence == "hint":
            continue
        shown = {each.saved_id for each in _shown_by(analysis, finding)}
        if not shown and finding.region_id in regions:
            shown = {each.saved_id for each in _differing(regions[finding.region_id])[:1]}
            explained = explained or bool(shown)
        blamed |= shown
    if not explained:
        blamed |= {
            saved.saved_id
            for saved in analysis.saved.values()
            if any(unpack.failed for unpack in saved.unpacks)
        }
    return frozenset(blamed)


def _shown_by(analysis: Analysis, finding: Finding) -> Iterator[SavedTensor]:
    """Yield the saved tensors of a finding's first node that its events unpack after a write."""
    node = analysis.graph.nodes.get(finding.nodes[0]) if finding.nodes else None
    events = set(finding.events)
    for saved in node.saved if node else ():
        history = analysis.history(saved.tensor.storage_id)
        writes = [e.seq for e in history.entries if e.kind == "written"] if history else []
        for unpack in saved.unpacks:
            written = any(saved.saved_seq < seq < unpack.seq for seq in writes)
            if unpack.seq in events and (written or unpack.failed):
                yield saved
                break


def _differing(region: Region) -> list[SavedTensor]:
    """Return the tensors of a region's forward that its last recomputation saved differently."""
    if not region.recomputations:
        return []
    again = region.recomputations[-1]
    found = []
    for first, second in zip_longest(region.saved, again.saved):
        if first is None or (second is None and again.outcome == "early_stop"):
            continue
        if second is None or _metadata(first) != _metadata(second):
            found.append(first)
    return found


def _metadata(saved: SavedTensor) -> tuple[str, tuple[int, ...], str]:
    return saved.tensor.dtype, saved.tensor.shape, saved.tensor.device
