"""Time and memory of each module, and the effect of checkpointing it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.scene.schema import SceneModule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Region, SavedTensor


def build_modules(analysis: Analysis) -> tuple[SceneModule, ...]:
    """Return one row for each named module that ran ops or saved tensors, in the model's order.

    Checkpointing a module frees the storages that were created inside it and saved only by its own
    nodes (its inputs stay, for the recomputation), and costs a second forward. For a module that
    is checkpointed already, both are measured from its regions.
    """
    forward_ns = _with_ancestors(
        (op.module, op.duration_ns) for op in analysis.ops if op.phase == "forward"
    )
    backward_ns = _with_ancestors(
        (node.module, node.duration_ns) for node in analysis.graph.nodes.values()
    )
    held, frees = _held_bytes(analysis)
    regions: dict[str, list[Region]] = defaultdict(list)
    for region in analysis.regions:
        regions[region.module].append(region)
    costs = region_costs(analysis)
    rows = []
    for module in analysis.modules.values():
        path = module.name
        own = regions.get(path, [])
        figures = forward_ns[path], backward_ns[path], held[path]
        if not path or not (any(figures) or own):
            continue
        rows.append(
            SceneModule(
                path=path,
                type_name=module.type_name,
                forward_ns=forward_ns[path],
                backward_ns=backward_ns[path],
                nbytes=held[path],
                checkpointed=bool(own),
                frees_nbytes=sum(costs[region.region_id].freed_nbytes for region in own)
                if own
                else frees[path],
                costs_ns=sum(costs[region.region_id].recompute_ns for region in own)
                if own
                else forward_ns[path],
            )
        )
    return tuple(rows)


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


def _with_ancestors(values: Iterable[tuple[str, int]]) -> Counter[str]:
    """Return the sums of values by module path. Each value counts for all enclosing modules."""
    own: Counter[str] = Counter()
    for path, value in values:
        own[path] += value
    sums: Counter[str] = Counter()
    for path, value in own.items():
        ancestor = path
        while ancestor:
            sums[ancestor] += value
            ancestor = ancestor.rpartition(".")[0]
    return sums


def _held_bytes(analysis: Analysis) -> tuple[Counter[str], Counter[str]]:
    """Return bytes by module: held only by its nodes, and the part of them that it created."""
    savers: dict[int, list[SavedTensor]] = defaultdict(list)
    for saved in analysis.saved.values():
        if saved.tensor.storage_id is not None and saved.recompute_id is None:
            savers[saved.tensor.storage_id].append(saved)
    sizes = {hold.storage_id: hold.nbytes for hold in analysis.memory.holds}
    held: list[tuple[str, int]] = []
    frees: list[tuple[str, int]] = []
    for storage_id, nbytes in sizes.items():
        paths = [_module_of(saved, analysis) for saved in savers.get(storage_id, ())]
        if not paths:
            continue
        holder = _common_ancestor(paths)
        held.append((holder, nbytes))
        creator = analysis.creators.get(storage_id)
        if creator is not None:
            frees.append((_common_ancestor([holder, creator.module]), nbytes))
    return _with_ancestors(held), _with_ancestors(frees)


def _module_of(saved: SavedTensor, analysis: Analysis) -> str:
    if saved.op is not None:
        return saved.op.module
    node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
    return node.module if node else ""


def _common_ancestor(paths: list[str]) -> str:
    """Return the innermost module that contains all modules."""
    parts = [path.split(".") for path in paths]
    shared = 0
    while all(len(p) > shared and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return ".".join(parts[0][:shared])
