"""The tables of the native engine: the same interfaces as in Python, kept in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import NO_ID
from autogradviz.recorder.ids import tensor_ids
from autogradviz.recorder.ids.tensor_ids import TensorTable
from autogradviz.recorder.ids.version_counters import VersionTable
from autogradviz.recorder.ops.fingerprints import Fingerprints, is_plain
from autogradviz.recorder.ops.node_creators import CreatorTable
from autogradviz.recorder.ops.recent_outputs import RecentOutputs
from autogradviz.recorder.torch_internals.read_grad_fn import safe_grad_fn

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    import torch

    from autogradviz.recorder.session import Session


class _StorageOf:
    """Storage ids by tensor id."""

    def __init__(self, native: Any) -> None:
        self._find = native.storage_id

    def __getitem__(self, tensor_id: int) -> int:
        return self._find(tensor_id)  # type: ignore[no-any-return]


class NativeTensors(TensorTable):
    """Ids of tensors and storages, assigned in C++."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._native = session.native.recording
        self.storage_of = _StorageOf(self._native)  # type: ignore[assignment]

    def intern(
        self,
        tensor: torch.Tensor,
        thread: int | None = None,  # noqa: ARG002
        now_ns: int | None = None,  # noqa: ARG002
    ) -> int:
        """Return a tensor's id."""
        return self._native.intern(tensor)  # type: ignore[no-any-return]

    def intern_by_shape(self, tensor: torch.Tensor) -> int:
        """Return a tensor's id: an exact one costs as little as one for all of a shape."""
        return self._native.intern(tensor)  # type: ignore[no-any-return]

    def intern_all(self, tensors: list[torch.Tensor]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of tensors, and their versions."""
        return self._native.intern_all(tensors)  # type: ignore[no-any-return]

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the id of a tensor's storage, None if it has none."""
        found = self._native.storage_id(tensor_id)
        return None if found == NO_ID else found

    def prune(self, used: AbstractSet[int]) -> None:
        """Remove dead storages, and the tensors on them that are not in use."""
        self._native.prune(set(used), tensor_ids.MAX_WINDOWS)

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the tensors that may be seen again."""
        return self._native.live_tensors()  # type: ignore[no-any-return]

    @property
    def live_storage_ids(self) -> AbstractSet[int]:
        """Not needed: versions are pruned with their storages."""
        return frozenset()

    def close(self) -> None:
        """Remove everything; the session closes the tables in C++."""


class NativeVersions(VersionTable):
    """Version counters of storages, known in C++."""

    def __init__(self, session: Session, tensors: NativeTensors) -> None:
        super().__init__(session, tensors)
        self._native = session.native.recording

    def seen(self, tensor_id: int, storage_id: int, version: int) -> None:
        """Record a counter that exceeds the last known value."""
        if storage_id != NO_ID:
            self._native.seen(tensor_id, version)

    def bumped(self, tensor_id: int, version: int) -> None:
        """Remember that a tensor's counter has reached a version."""
        self._native.bumped(tensor_id, version)

    def restored(self, tensor_id: int, version: int) -> None:
        """Record that PyTorch restored a counter."""
        self._native.restored(tensor_id, version)

    def at(self, tensor_id: int, seq: int) -> int | None:
        """Return a tensor's version at the time of an event, None if it is unknown."""
        return self._native.version_at(tensor_id, seq)  # type: ignore[no-any-return]

    def prune(self, storages: AbstractSet[int], first_seq: int) -> None:
        """Forget the history before an event."""
        self.prune_history(storages, first_seq)

    def prune_history(self, storages: AbstractSet[int], first_seq: int) -> None:  # noqa: ARG002
        """Forget the history before an event."""
        self._native.prune_history(first_seq)


class NativeFingerprints(Fingerprints):
    """Fingerprints of contents on the host, computed in C++."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._native = session.native.recording

    def of(self, tensor: torch.Tensor) -> int:
        """Return the fingerprint of a tensor's content, NO_ID if it cannot be read."""
        return self._native.fingerprint(tensor) if is_plain(tensor) else NO_ID


class _CustomStacks:
    """Stacks at which custom Functions saved, or ran their first op, by sequence number."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.get: Callable[[int], int | None] = native.custom_stack
        """Return a stack, None if it is unknown."""

    def __bool__(self) -> bool:
        return True

    def __setitem__(self, sequence_nr: int, stack_id: int | None) -> None:
        self._native.set_custom_stack(sequence_nr, NO_ID if stack_id is None else stack_id)


class NativeCreators(CreatorTable):
    """Facts about the operators that created nodes. Versions at save are read from the slots."""

    def __init__(self, session: Session, tensors: NativeTensors, versions: NativeVersions) -> None:
        super().__init__(tensors, versions)
        self._native = session.native.recording
        self.custom = _CustomStacks(self._native)  # type: ignore[assignment]

    def prune(self, first_seq: int) -> None:
        """Do nothing: C++ forgets old numbers."""


class NativeRecentOutputs(RecentOutputs):
    """The most recent results of operators, remembered in C++, and those of modules."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._native = session.native.recording

    def nodes(self) -> list[Any]:
        """Return the nodes of the results that are alive, the newest first."""
        nodes = [safe_grad_fn(tensor) for tensor in self._native.recent() if tensor.requires_grad]
        return [*super().nodes(), *(node for node in nodes if node is not None)]
