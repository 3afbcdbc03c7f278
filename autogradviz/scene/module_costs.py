"""What each module costs, and what checkpointing it saves and costs or would."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from autogradviz.scene.schema import SceneModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Region, SavedTensor


def draw_modules(analysis: Analysis) -> tuple[SceneModule, ...]:
    """Return one row for each named module that ran ops or saved tensors, in the model's order.

    Checkpointing a module frees what was made inside it and is saved by none but its own nodes
    (inputs stay: they are what it starts again from), and costs its forward a second time. For a
    module that is checkpointed already, the same is counted from what its regions did.
    """
    forward_ns, backward_ns = _forward_times(analysis), _backward_times(analysis)
    kept, frees = _kept_bytes(analysis)
    regions: dict[str, list[Region]] = defaultdict(list)
    for region in analysis.regions:
        regions[region.module].append(region)
    owned = {analysis.tensors[tensor_id].storage_id for tensor_id in analysis.parameters}
    rows = []
    for module in analysis.modules.values():
        path = module.name
        own = regions.get(path, [])
        times = forward_ns[path], backward_ns[path], kept[path]
        if not path or not (any(times) or own):
            continue
        rows.append(
            SceneModule(
                path=path,
                type_name=module.type_name,
                forward_ns=times[0],
                backward_ns=times[1],
                nbytes=times[2],
                checkpointed=bool(own),
                frees_nbytes=sum(_freed(region, owned) for region in own) if own else frees[path],
                costs_ns=sum(a.duration_ns for r in own for a in r.recomputations)
                if own
                else times[0],
            )
        )
    return tuple(rows)


def _around(path: str) -> Iterator[str]:
    """Yield a module's path and those of the modules around it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _forward_times(analysis: Analysis) -> Counter[str]:
    times: Counter[str] = Counter()
    for op in analysis.ops:
        if op.phase == "forward":
            times[op.module] += op.duration_ns
    return _with_inner(times)


def _backward_times(analysis: Analysis) -> Counter[str]:
    times: Counter[str] = Counter()
    for node in analysis.graph.nodes.values():
        times[node.module] += node.duration_ns
    return _with_inner(times)


def _with_inner(own: Counter[str]) -> Counter[str]:
    """Return sums that count what is inside a module as its own."""
    sums: Counter[str] = Counter()
    for path, value in own.items():
        for outer in _around(path):
            sums[outer] += value
    return sums


def _kept_bytes(analysis: Analysis) -> tuple[Counter[str], Counter[str]]:
    """Return the bytes that only a module's nodes keep, and those that it made itself besides."""
    savers: dict[int, list[SavedTensor]] = defaultdict(list)
    for saved in analysis.saved.values():
        if saved.tensor.storage_id is not None and saved.recompute_id is None:
            savers[saved.tensor.storage_id].append(saved)
    sizes = {hold.storage_id: hold.nbytes for hold in analysis.memory.holds}
    kept: Counter[str] = Counter()
    frees: Counter[str] = Counter()
    for storage_id, nbytes in sizes.items():
        paths = [_module_of(saved, analysis) for saved in savers.get(storage_id, ())]
        if not paths:
            continue
        shared = _common(paths)
        kept[shared] += nbytes
        creator = analysis.creators.get(storage_id)
        if creator is not None:
            frees[_common([shared, creator.module])] += nbytes
    return _with_inner(kept), _with_inner(frees)


def _module_of(saved: SavedTensor, analysis: Analysis) -> str:
    if saved.op is not None:
        return saved.op.module
    node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
    return node.module if node else ""


def _common(paths: list[str]) -> str:
    """Return the innermost module around all of them."""
    parts = [path.split(".") for path in paths]
    shared = 0
    while all(len(p) > shared and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return ".".join(parts[0][:shared])


def _freed(region: Region, owned: set[int | None]) -> int:
    """Return the bytes that a region does not keep until it runs again."""
    arguments = {s.tensor.storage_id for s in region.saved if s.is_argument}
    stays = owned | arguments
    sizes = {
        s.tensor.storage_id: s.tensor.storage_nbytes
        for s in region.saved
        if not s.is_argument and s.tensor.storage_id not in stays
    }
    return sum(sizes.values())
