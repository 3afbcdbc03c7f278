"""Costs of checkpoint regions: the bytes that they free and hold, and their recomputations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis


@dataclass(frozen=True, slots=True)
class RegionCosts:
    """Bytes that a checkpoint region frees and holds, and the time of its recomputations."""

    freed_nbytes: int
    held_nbytes: int
    recompute_ns: int


def region_costs(analysis: Analysis) -> dict[int, RegionCosts]:
    """Return the costs of each checkpoint region by its id. Parameters are alive anyway."""
    owned = {analysis.tensors[tensor_id].storage_id for tensor_id in analysis.parameters}
    arguments: dict[int | None, dict[int | None, int]] = defaultdict(dict)  # sizes by storage
    for saved in analysis.saved.values():
        if saved.is_argument and saved.tensor.storage_id not in owned:
            arguments[saved.region_id][saved.tensor.storage_id] = saved.tensor.storage_nbytes
    costs = {}
    for region in analysis.regions:
        held = arguments[region.region_id]
        freed = {
            saved.tensor.storage_id: saved.tensor.storage_nbytes
            for saved in region.saved
            if saved.tensor.storage_id not in owned and saved.tensor.storage_id not in held
        }
        recompute_ns = sum(again.duration_ns for again in region.recomputations)
        costs[region.region_id] = RegionCosts(sum(freed.values()), sum(held.values()), recompute_ns)
    return costs
