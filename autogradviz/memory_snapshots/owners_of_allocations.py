"""The tensors of a recording to which the allocations of a snapshot belong."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.errors import MemorySnapshotError
from autogradviz.events import ParameterSeen, StorageAddressSeen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, SavedTensor
    from autogradviz.analysis.saved_memory import CountedStorage
from autogradviz.memory_snapshots.read_allocations import (
    Allocation,
    AllocationIndex,
    Snapshot,
)

# The recorder notes the address of each saved tensor, parameter and gradient, with the time of the
# wall clock, at which the tensor was alive. The allocator's entries have the same clock. So the
# allocation at that address and time is that of the tensor, also if the address was used again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The tensor of a recording to which one allocation belongs."""

    role: str  # "saved", "parameter" or "gradient"
    module: str
    filename: str  # "" if unknown
    lineno: int
    name: str  # of a parameter, or slots: "AddmmBackward0.mat1"
    nbytes: int  # of the storage
    storage_id: int | None
    time_us: int  # when it was seen
    is_alive: bool  # nothing has freed it before the recording ended, as far as is known


class TensorOwners:
    """The allocations of the tensors of one recording."""

    def __init__(
        self, analysis: Analysis, snapshot: Snapshot, allocations: list[Allocation]
    ) -> None:
        """Match the tensors of a recording with the allocations in a snapshot.

        Raises:
            MemorySnapshotError: the recording has no addresses.
        """
        if not analysis.log.of(StorageAddressSeen):
            message = "the recording has no addresses: use record(annotate_memory=True)"
            raise MemorySnapshotError(message)
        self._analysis = analysis
        self._saves: dict[int | None, list[SavedTensor]] = defaultdict(list)
        for each in sorted(analysis.saved.values(), key=lambda save: save.saved_seq):
            if each.is_held_in_place:
                self._saves[each.tensor.storage_id].append(each)
        self._packed_at: dict[tuple[int | None, int | None], int | None] = {
            (each.region_id, each.position): each.node_id
            for each in analysis.saved.values()
            if each.recompute_id is None and each.region_id is not None
        }
        self._counted: dict[int | None, CountedStorage] = {
            each.storage_id: each for each in analysis.saved_memory.storages
        }
        self._parameters = {
            event.tensor_id: event.parameter_name for event in analysis.log.of(ParameterSeen)
        }
        index = AllocationIndex(snapshot, allocations)
        self.missing: list[Owner] = []
        """Tensors on a device of the snapshot to which no allocation belongs."""
        self._of: dict[int, Owner] = {}
        for address, owner, on_host in self._owners():
            found = index.find(address, owner.time_us, owner.nbytes, is_alive=owner.is_alive)
            if found is None:
                if not on_host:
                    self.missing.append(owner)
                continue
            known = self._of.get(id(found))
            if known is None or _RANKS[owner.role] < _RANKS[known.role]:
                self._of[id(found)] = owner

    def of(self, allocation: Allocation) -> Owner | None:
        """Return the owner of an allocation, None if the recording does not know it."""
        return self._of.get(id(allocation))

    def _owners(self) -> Iterator[tuple[int, Owner, bool]]:
        for event in self._analysis.log.of(StorageAddressSeen):
            tensor = self._analysis.tensors[event.tensor_id]
            name = self._parameters.get(event.tensor_id, "")
            role, storage_id = event.role, tensor.storage_id
            counted = self._counted.get(storage_id) if role == "saved" else None
            if role == "saved" and counted is None:
                if not name:
                    continue  # hooks keep a copy of it instead
                role = "parameter"
            yield (
                event.address,
                Owner(
                    role=role,
                    module=counted.module if counted else name.rpartition(".")[0],
                    filename=counted.filename if counted else "",
                    lineno=counted.lineno if counted else 0,
                    name=self._slots(storage_id) if counted else name,
                    nbytes=counted.nbytes if counted else tensor.storage_nbytes,
                    storage_id=storage_id if role != "gradient" else None,
                    time_us=event.wall_ns // 1000,
                    is_alive=not (counted and counted.released),
                ),
                tensor.device == "cpu",
            )

    def _slots(self, storage_id: int | None) -> str:
        """Return the slots that keep a storage, "AddmmBackward0.mat1, MulBackward0.self"."""
        nodes = self._analysis.graph.nodes
        names: dict[str, None] = {}
        for each in self._saves[storage_id]:
            node_id = each.node_id
            if node_id is None:  # nodes of a recomputation are not recorded: that of the forward
                node_id = self._packed_at.get((each.region_id, each.position))
            node = None if node_id is None else nodes.get(node_id)
            if each.is_argument:
                names["argument of a checkpoint region"] = None
            elif node is not None and each.slot:
                names[f"{node.name}.{each.slot}"] = None
        return ", ".join(names)


_RANKS = {"parameter": 0, "gradient": 1, "saved": 2}
