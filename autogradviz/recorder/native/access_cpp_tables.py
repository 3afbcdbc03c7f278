"""The tables of the native engine, which are in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from autogradviz.event_log.encode_arrow_stream import to_batches
from autogradviz.event_log.filter_and_redact import DEFINED_TARGETS, USES
from autogradviz.event_log.uncompressed_rows import Rows
from autogradviz.events import (
    EVENT_TYPES,
    NO_ID,
    ArgumentsSeen,
    CollectiveCalled,
    DeviceCopied,
    DistributedTensorSeen,
    Event,
    FrameSeen,
    GradAccumulated,
    ModuleEntered,
    ModuleExited,
    MutationCloned,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    NotFiniteSeen,
    OpCalled,
    OutputNormRead,
    RandomDrawn,
    RecorderLimited,
    SlotSeen,
    StackSeen,
    StoragesFreed,
    StreamUsed,
    StridesSeen,
    TensorReleased,
    TensorSaved,
    TensorSeen,
    TensorUnpacked,
    VersionBumped,
    VersionRestored,
)
from autogradviz.recorder.ops.hashes_norms_and_draws import RecentOutputs
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.nodes import safe_grad_fn
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    import torch

    from autogradviz.event_log.encode_arrow_stream import Encoder
    from autogradviz.event_log.uncompressed_rows import Columns
    from autogradviz.events import PackedBy
    from autogradviz.events.field_types import Target
    from autogradviz.recorder.backward.backward_calls import EngineCall
    from autogradviz.recorder.backward.custom_function_calls import CustomFunctionTable
    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.device_times import DeviceTimes
    from autogradviz.recorder.engine_interface import RecentTensors, Region
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.native.extension_types import Batch, Recording
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
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


# --- nodes and runs -------------------------------------------------------------------------------
#
# The nodes of the autograd graph, their runs and the calls of modules, as C++ records them.


class NativeModuleCalls:
    """Records the calls of modules."""

    def __init__(
        self, session: Session, recording: Recording, modules: ModuleTable, recent: RecentTensors
    ) -> None:
        self._session = session
        self._local = session.threads.local
        self._modules = modules
        self._recent = recent
        self.times: DeviceTimes | None = None
        self._enter = recording.enter_module
        self._exit = recording.exit_module

    @skip_dynamo_recursive
    def on_enter(self, module: torch.nn.Module) -> int | None:
        """Record that a module's forward starts; return the number of open calls before it."""
        try:
            state = self._local.state  # lets C++ know this thread
            module_id = self._modules.find(module)
            if module_id is None and self._session.observes():
                module_id = self._modules.intern(module, state)
            opened = None if module_id is None else self._enter(module_id)
            if opened is not None and self.times is not None:
                self.times.on_enter(module)
            return opened  # noqa: TRY300
        except Exception as error:  # noqa: BLE001 - whatever failed here, the module must run
            self._session.fail("modules", error)
            return None

    @skip_dynamo_recursive
    def on_exit(self, opened: int, output: Any) -> None:
        """Record that a module's forward ended (``output`` is None if it raised)."""
        try:
            if self.times is not None:
                self.times.on_exit(opened)
            if self._exit(opened, output is None):
                self._recent.remember(output)
        except Exception as error:  # noqa: BLE001
            self._session.fail("modules", error)


class NativeNodes:
    """Walks graphs."""

    def __init__(
        self,
        session: Session,
        recording: Recording,
        leaves: LeafTable,
        saves: SaveTable,
        functions: CustomFunctionTable,
    ) -> None:
        self._session = session
        self._recording = recording
        self._add_leaf = leaves.add
        leaves.forget_listeners.append(recording.forget_leaf)
        self._saves = saves
        self._functions = functions
        self.oldest = 0
        """Nodes whose description is older than this event are described again."""
        self.id_of: Callable[[Any], int] = recording.node_id
        """Return a node's id."""
        self.is_new: Callable[[Any], bool] = recording.is_new
        """Return whether no walk has reached a node yet."""

    def untag(self, roots: Iterable[Any]) -> None:
        """Forget the nodes that ``roots`` reach."""
        self._recording.forget(list(roots))

    def record(self, roots: Iterable[Any]) -> None:
        """Record every node that gradients of ``roots`` reach, once."""
        self.walk(roots)

    def walk(self, roots: Iterable[Any]) -> list[tuple[int, torch.Tensor]]:
        """Record every node that gradients of ``roots`` reach, once.

        Returns:
            The leaves that were not known, or have hooks: tensor id and tensor.
        """
        leaves, functions, unlocated = self._recording.walk(
            list(roots), self.oldest, self._read_hooked
        )
        for slot in unlocated:
            message = f"the saved tensors of {slot} were not found in its memory: not recorded"
            self._session.emit(RecorderLimited, "slots", message)
        for tensor_id, leaf in leaves:
            self._add_leaf(tensor_id, leaf)
        for node_id, node in functions:
            self._functions.read_context(node, node_id)
        return leaves

    def _read_hooked(self, content: Any, node_id: int, sequence_nr: int | None, slot: str) -> int:
        """Record that a slot holds what a hook packed; return the id of the save."""
        return self._saves.read_hooked(content, node_id, sequence_nr, slot)[0]


class NativeRuns:
    """Records the runs of nodes."""

    def __init__(self, recording: Recording, nodes: NativeNodes, gradients: GradientTable) -> None:
        self._recording = recording
        self._nodes = nodes
        self._reached = gradients.reached
        self.open: dict[int, EngineCall] = {}
        """The open calls of PyTorch's engine, by backward id."""
        self.on_first_hook: Callable[[], None] = recording.hook_runs
        """Record that the last node has finished, if the first hook of another one runs."""
        self.current: Callable[[], tuple[int | None, int | None]] = recording.current_node
        """Return the backward and the node that run on this thread, by their ids."""

    def begin(self, call: EngineCall, roots: Iterable[Any]) -> Iterator[tuple[torch.Tensor, int]]:
        """Walk a graph and observe its nodes; yield the leaves that may have hooks, with ids."""
        leaves = self._nodes.walk(roots)
        self._recording.begin_backward(call.backward_id, call.keep_graph)
        for tensor_id, leaf in leaves:
            yield leaf, tensor_id

    def unhook(self, call: EngineCall) -> None:
        """Do nothing: the nodes have no hooks."""

    def end(self, call: EngineCall, *, failed: bool) -> None:
        """Finish the last nodes of a call that has returned or raised."""
        self.open.pop(call.backward_id, None)
        self._reached.update(self._recording.end_backward(call.backward_id, failed))


# --- events as C++ wrote them, decoded to rows when their kind is read; a segment of a log --------


KINDS: Final[tuple[type[Event], ...]] = (
    TensorSeen, OpCalled, VersionBumped, VersionRestored, StackSeen, FrameSeen, RandomDrawn,
    MutationCloned, NodeSeen, TensorSaved, TensorUnpacked, TensorReleased, SlotSeen,
    NodeStarted, NodeFinished, GradAccumulated, ModuleEntered, ModuleExited, NotFiniteSeen,
    CollectiveCalled, DistributedTensorSeen, OutputNormRead, ArgumentsSeen, StridesSeen,
    DeviceCopied, StreamUsed, StoragesFreed,
)  # fmt: skip
"""The kinds of events that C++ emits, in the order of its enumeration."""

_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_REFERENCES: Final = tuple(
    (number, used.place, DEFINED_TARGETS.index(used.target))
    for kind, number in _NUMBERS.items()
    for used in USES[kind]
    if used.target in DEFINED_TARGETS
)
_CODEC: Final = pa.Codec("zstd", 1)
_COMPRESSED: Final = 2**18
"""Bytes from which on events are compressed."""


class UndecodedRows:
    """Events that C++ emitted, but frames: those are described while their code lives."""

    def __init__(self, batch: Batch) -> None:
        """Take a batch of events."""
        self._batch = batch
        counts = dict(zip(KINDS, batch.counts(), strict=True))
        self.counts = {
            kind: count for kind, count in counts.items() if count and kind is not FrameSeen
        }
        self._nbytes = batch.nbytes()
        self._compressed: bytes | None = None

    def compress(self) -> None:
        """Compress the events, if they are many."""
        if self._nbytes >= _COMPRESSED:
            self._compressed = _CODEC.compress(self._batch.pack(), asbytes=True)

    def take(self, kinds: Collection[type[Event]]) -> list[tuple[type[Event], list[Any]]]:
        """Return the values of all rows of some kinds, which the segment then lacks."""
        found = list(self.values(kinds))
        for kind, _ in found:
            del self.counts[kind]
        return found

    def values(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], list[Any]]]:
        """Yield the values of all rows of some kinds, one row after the other."""
        found = [kind for kind in self.counts if kind in kinds]
        if self._compressed is not None:
            self._batch.unpack(_CODEC.decompress(self._compressed, self._nbytes, asbytes=True))
        with collector_waiting():
            decoded = self._batch.decode([_NUMBERS[kind] for kind in found])
        if self._compressed is not None:
            self._batch.pack()
        return zip(found, decoded, strict=True)

    def used_ids(self) -> dict[Target, set[int]]:
        """Return the ids of definitions that the events refer to. They are not compressed."""
        found = self._batch.references(_REFERENCES, len(DEFINED_TARGETS))
        return dict(zip(DEFINED_TARGETS, found, strict=True))

    def only(self, kind: type[Event]) -> UndecodedRows:
        """Return the events of one kind. They are not compressed."""
        return UndecodedRows(self._batch.only(_NUMBERS[kind]))

    def decode_defined(self, kind: type[Event], ids: AbstractSet[int]) -> list[Any]:
        """Return the values of the definitions of some ids, one row after the other.

        They are not compressed.
        """
        return self._batch.decode_defined(_NUMBERS[kind], ids)

    def columns(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], Columns]]:
        """Yield the columns of some kinds."""
        for kind, values in self.values(kinds):
            yield kind, Rows(kind, values).columns()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all events as columns."""
        found = {kind: Rows(kind) for kind in EVENT_TYPES}
        for kind, values in self.values(self.counts):
            found[kind] = Rows(kind, values)
            found[kind].sort()
        yield from to_batches(found)

    def messages(self, encoder: Encoder) -> Iterator[bytes]:
        """Yield all events as messages of a file."""
        return map(encoder.encode, self.batches())


def frames_of(batch: Batch) -> list[Any]:
    """Return the values of the frames in a batch, one after the other."""
    return batch.decode([_NUMBERS[FrameSeen]])[0]
