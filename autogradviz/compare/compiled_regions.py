"""Differences between the compiled regions of two recordings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from autogradviz.compare.result import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis


def compiled_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield differences in compiled regions, saved bytes, recomputed ops, breaks and guards."""
    old, new = _facts(before), _facts(after)
    for what in dict.fromkeys((*old, *new)):
        if old[what] != new[what]:
            yield Difference(
                aspect="compiled", what=what, before=f"{old[what]:,}", after=f"{new[what]:,}"
            )


def _facts(analysis: Analysis) -> Counter[str]:
    facts: Counter[str] = Counter()
    for region in analysis.compiled_regions:
        facts[f"regions of {region.backend or 'a backend'}"] += 1
        facts[f"bytes that {region.name} saves"] += region.saved_nbytes
        for op in region.recomputed:
            facts[f"ops that {region.name} recomputes, {op.cause}"] += 1
    for each in analysis.graph_breaks:
        facts[f"graph breaks at {each.location or '?'}"] += 1
    for recompile in analysis.recompiles:
        facts[f"recompiles of {recompile.function or '?'}"] += 1
    return facts
