"""The tables of the native engine, which are in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import NO_ID
from autogradviz.recorder.ops.recent_outputs_to_walk import RecentOutputs
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import PLAIN_TENSORS
from autogradviz.recorder.torch_internals.read_grad_fn import safe_grad_fn

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine_interface import Region
    from autogradviz.recorder.native.extension_types import Recording
    from autogradviz.recorder.session import Session


class NativeTensors:
    """Ids of tensors and storages."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.intern: Callable[[torch.Tensor], int] = recording.intern
        """Return a tensor's id."""
        self.intern_all = recording.intern_all
        """Return the ids of tensors, and their versions."""

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the id of a tensor's storage, None if it has none."""
        found = self._recording.storage_id(tensor_id)
        return None if found == NO_ID else found

    def id_of_storage(self, storage: torch.UntypedStorage) -> int | None:
        """Return the id of a storage, None if no tensor of it was seen."""
        found = self._recording.id_of_storage(storage._cdata)  # noqa: SLF001 - its address
        return None if found == NO_ID else found


class NativeFingerprints:
    """Fingerprints of contents on the host."""

    def __init__(self, session: Session, recording: Recording) -> None:
        self._session = session
        self._recording = recording

    def of(self, tensor: torch.Tensor) -> int:
        """Return the fingerprint of a tensor's content, NO_ID if it cannot be read."""
        return self._recording.fingerprint(tensor) if type(tensor) in PLAIN_TENSORS else NO_ID

    def hash_of(self, tensor: torch.Tensor) -> int | None:
        """Return the fingerprint of a tensor's content, None unless fingerprints are recorded."""
        found = self.of(tensor) if self._session.with_fingerprints else NO_ID
        return None if found == NO_ID else found


class NativeFunctions:
    """Stacks at which custom Functions saved. Versions at save are read from the slots."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.stack_of: Callable[[int], int | None] = recording.custom_stack
        """Return the stack at which a Function saved, or ran its first op; None if unknown."""

    def saved(self, sequence_nr: int, seq: int, stack_id: int | None) -> None:  # noqa: ARG002
        """Remember the stack at a ``save_for_backward``."""
        if stack_id is not None:
            self._recording.set_custom_stack(sequence_nr, stack_id)

    def marked_dirty(self, sequence_nr: int, tensor_ids: frozenset[int]) -> None:
        """Do nothing: it would tell the version at save."""


class NativeRecentTensors:
    """The most recent results of operators, remembered in C++, and those of modules."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._of_modules = RecentOutputs()
        self.remember: Callable[[Any], None] = self._of_modules.remember
        """Add the result of a module."""
        self.release: Callable[[torch.Tensor], None] = self._of_modules.release
        """Drop the weak references to a tensor."""

    def nodes(self) -> list[Any]:
        """Return the nodes of the results that are alive."""
        tensors = [tensor for tensor in self._recording.recent() if tensor.requires_grad]
        nodes = [node for node in map(safe_grad_fn, tensors) if node is not None]
        return [*self._of_modules.nodes(), *nodes]


class NativeSaves:
    """Ids of saves; those of checkpoint's hooks are kept in C++."""

    def __init__(self, session: Session, recording: Recording) -> None:
        self._local = session.threads.local
        self._recording = recording
        self.next_id: Callable[[], int] = recording.next_saved_id
        """Return the id of a new save."""
        self.take_released: Callable[[], list[int]] = recording.take_released
        """Return the saves whose nodes have released them since the last call."""
        self.discard_dead: Callable[[Any], None] = recording.discard_dead_packed
        """Forget dead saves whose packed object had the address of a new one."""
        self.release: Callable[[torch.Tensor], None] = recording.release_packed
        """Drop the weak references to a tensor."""
        self.prune: Callable[[int], None] = recording.prune_packed
        """Forget saves with smaller ids."""

    @property
    def count(self) -> int:
        """The number of saves so far, which is the id of the next one."""
        return self._recording.saved_count()

    def record_packing(
        self, tensor: torch.Tensor, packed_by: PackedBy, region: Region, position: int | None
    ) -> tuple[int, int | None, int]:
        """Record a save; return its id, the tensor's version and the node's sequence number."""
        _ = self._local.state  # lets C++ know this thread
        return self._recording.record_packing(tensor, packed_by, *region, position)


class NativeDeviceSpans:
    """Times on devices; see ``DeviceSpans``."""

    def __init__(self, recording: Recording, device_type: str) -> None:
        recording.time_device(device_type)
        self.begin: Callable[[int, int], None] = recording.begin_span
        """Record that a module call begins, on the current stream of a device."""
        self.end: Callable[[int], None] = recording.end_span
        """Record that a module call ends."""
        self.waiting: Callable[[], int] = recording.waiting_spans
        """Return the number of spans that have ended and were not read."""
        self.take: Callable[[bool], tuple[list[tuple[Any, ...]], str]] = recording.take_spans
        """Return the spans that the device has passed, or all, and what failed."""
