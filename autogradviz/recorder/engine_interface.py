"""The interface of an engine: what observes operators, the graph, its nodes and saved tensors.

NOTE [ Two engines ]
``python_engine/`` consists of a dispatch mode, hooks before nodes, and tables in Python.
``native/`` does the same in C++ at a third of the cost; it needs a build for the PyTorch in use,
cannot open a debugger and does not read contents on accelerators. Each is complete and uses nothing
of the other. They share the types of events, ``thread_state.py``, and the hook points that exist
once (``hook_points.py``): modules, hooks, checkpoint, compilers, optimizers, backward calls. Those
know the tables of an engine by the protocols here.

A tensor that a node saves takes this way to a row of ``TensorSaved``:

- Python: ``hook_points.py`` wraps the call of the engine (``backward/backward_calls.py``); it walks
  the graph (``python_engine/graph_walk.py``), which reads the slots of each new node
  (``python_engine/saved_tensors.py``) and appends the row.
- C++: the same call reaches ``native/access_cpp_tables.py``, which calls ``walk`` in
  ``native/graph.h``; the slots are read from the node's memory there, and the row is written to a
  buffer (``native/event_buffer.h``), which is decoded when the log is read
  (``native/access_cpp_tables.py``).

A tensor that a pair of hooks packs goes through ``saved_tensors/hooks.py`` in both engines;
with the native one those of checkpoint go through ``native/checkpoint_hooks.h``.

NOTE [ Ids ]
Ids are small integers, one counter per kind. A storage is identified by the address of its Python
object for as long as a weak reference to it is alive. A tensor is a view of a storage: offset,
shape, dtype. Without operators, gradients are not followed: the Python engine gives all gradients
of one shape and dtype one id, which saves a fifth of the cost. A node is identified by a tag in its
``metadata``, which is destroyed with the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager
    from types import FrameType, TracebackType

    import torch

    from autogradviz.event_log.log import EngineSegment
    from autogradviz.events import Event, PackedBy
    from autogradviz.recorder.backward.backward_calls import EngineCall
    from autogradviz.recorder.backward.custom_function_calls import CustomFunctionTable
    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.checkpoint.state_walk_snapshot import TakeSnapshot
    from autogradviz.recorder.device_times import DeviceTimes
    from autogradviz.recorder.event_writer import EventSequence
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.ops.op_arguments import OpOrigins
    from autogradviz.recorder.saved_tensors.hooks import HookTracer
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState, ThreadTable

MAX_STACKS: Final = 20_000
"""A long recording forgets its stacks when there are more than this."""

MAX_WINDOWS: Final = 50_000
"""A long recording forgets unused tensors on live storages when there are more than this."""

Region: TypeAlias = "tuple[int | None, int | None]"
"""A checkpoint region and a recomputation."""


class Stacks(Protocol):
    """Ids of Python stacks."""

    outermost: int
    """``id`` of the frame that opened the recording: stacks end there."""

    def capture_outside(self) -> int:
        """Return the id of the stack at the innermost frame outside the recorder."""

    def of_frame(self, frame: FrameType) -> int:
        """Return the id of the stack of a frame, which may belong to another thread."""

    def of_traceback(self, traceback: TracebackType | None) -> int | None:
        """Return the id of the stack at which an exception was raised."""

    def mark(self, depth: int, state: ThreadState) -> None:
        """Note that the frame ``depth`` frames above the caller stays open until it is unmarked."""

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the stacks that may be captured again."""


class TensorIds(Protocol):
    """Ids of tensors and storages."""

    def intern(self, tensor: torch.Tensor) -> int:
        """Return a tensor's id. Call it with function overrides disabled."""

    def intern_all(self, tensors: list[torch.Tensor]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of tensors, and their versions."""

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the id of a tensor's storage, None if it has none."""

    def id_of_storage(self, storage: torch.UntypedStorage) -> int | None:
        """Return the id of a storage, None if no tensor of it was seen."""


class VersionCounters(Protocol):
    """The known version counters of storages."""

    def bumped(self, tensor_id: int, version: int) -> None:
        """Remember that a tensor's counter has reached a version."""

    def restored(self, tensor_id: int, version: int) -> None:
        """Record that PyTorch restored a tensor's counter."""


class ContentHashes(Protocol):
    """Fingerprints of contents."""

    def of(self, tensor: torch.Tensor) -> int:
        """Return the fingerprint of a tensor's content, NO_ID if it cannot be read."""

    def hash_of(self, tensor: torch.Tensor) -> int | None:
        """Return the fingerprint of a tensor's content, None unless fingerprints are recorded."""


class RecentTensors(Protocol):
    """The most recent results, weakly referenced: the way to graphs that no backward entered."""

    def remember(self, result: Any) -> None:
        """Add a result."""

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""

    def nodes(self) -> list[Any]:
        """Return the nodes of the results that are alive."""


class FunctionFacts(Protocol):
    """Facts about custom Functions, by the sequence number of their node."""

    def saved(self, sequence_nr: int, seq: int, stack_id: int | None) -> None:
        """Remember the newest event at a ``save_for_backward``, and its stack."""

    def marked_dirty(self, sequence_nr: int, tensor_ids: frozenset[int]) -> None:
        """Remember the tensors that ``mark_dirty`` named."""

    def stack_of(self, sequence_nr: int) -> int | None:
        """Return the stack at which a Function saved, or ran its first op; None if unknown."""


class Saves(Protocol):
    """Ids of saves, and the saves that an engine itself keeps."""

    @property
    def count(self) -> int:
        """The number of saves so far, which is the id of the next one."""

    def next_id(self) -> int:
        """Return the id of a new save."""

    def record_packing(
        self, tensor: torch.Tensor, packed_by: PackedBy, region: Region, position: int | None
    ) -> tuple[int, int | None, int]:
        """Record a save through hooks.

        Returns:
            Its id, the tensor's version, and the sequence number of the node that saves.
        """

    def take_released(self) -> Iterable[int]:
        """Return the saves whose nodes have released them since the last call."""

    def discard_dead(self, packed: Any) -> None:
        """Forget dead saves whose packed object had the address of a new one."""

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""

    def prune(self, first_saved_id: int) -> None:
        """Forget saves with smaller ids."""


@dataclass(frozen=True)
class Tables:
    """The tables of an engine that every hook point may use."""

    tensors: TensorIds
    versions: VersionCounters
    contents: ContentHashes
    recent: RecentTensors
    functions: FunctionFacts
    saves: Saves


class Nodes(Protocol):
    """The nodes of the autograd graph."""

    oldest: int
    """Nodes whose description is older than this event are described again."""

    def id_of(self, node: Any) -> int:
        """Return a node's id."""

    def is_new(self, node: Any) -> bool:
        """Return whether no walk has reached a node yet."""

    def record(self, roots: Iterable[Any]) -> None:
        """Record every node that gradients of ``roots`` reach, once."""

    def untag(self, roots: Iterable[Any]) -> None:
        """Forget the nodes that ``roots`` reach."""


class Runs(Protocol):
    """The runs of nodes."""

    open: dict[int, EngineCall]
    """The open calls of PyTorch's engine, by backward id."""

    def begin(self, call: EngineCall, roots: list[Any]) -> Iterator[tuple[torch.Tensor, int]]:
        """Walk a graph and observe its nodes; yield the leaves that may have hooks, with ids."""

    def unhook(self, call: EngineCall) -> None:
        """Observe the nodes of a call no more."""

    def end(self, call: EngineCall, *, failed: bool) -> None:
        """Finish the last nodes of a call that has returned or raised."""

    def on_first_hook(self) -> None:
        """Record that the last node has finished, if the first hook of another one runs."""

    def current(self) -> tuple[int | None, int | None]:
        """Return the backward and the node that run on this thread, by their ids."""


class ModuleCalls(Protocol):
    """The calls of modules."""

    times: DeviceTimes | None
    """Records when the device runs them, if that is wanted."""

    def on_enter(self, module: torch.nn.Module) -> Any:
        """Record that a module's forward starts; return what ``on_exit`` needs, or None."""

    def on_exit(self, opened: Any, output: Any) -> None:
        """Record that a module's forward ended (``output`` is None if it raised)."""


class DeviceSpans(Protocol):
    """The times of module calls and nodes on devices."""

    def begin(self, call_id: int, index: int, /) -> None:
        """Record that a module call begins, on the current stream of a device."""

    def end(self, call_id: int, /) -> None:
        """Record that a module call ends."""

    def waiting(self) -> int:
        """Return the number of spans that have ended and were not read."""

    def take(self, wait: bool, /) -> tuple[list[tuple[Any, ...]], str]:  # noqa: FBT001
        """Return the own fields of ``DeviceTimeRead`` for the spans that the device has passed.

        Args:
            wait: wait once for each device, and return all spans.

        Returns:
            The rows, and what failed, "" if nothing did.
        """


@dataclass(frozen=True)
class GraphTables:
    """The tables of an engine that are built on those of the hook points."""

    nodes: Nodes
    runs: Runs
    module_calls: ModuleCalls


class WrapHooks(Protocol):
    """Wraps a pair of saved-tensor hooks."""

    def __call__(
        self, pack: Any, unpack: Any, packed_by: PackedBy, region: Region
    ) -> tuple[Any, Any]:
        """Return wrappers that record what the hooks do."""


class MethodOf:
    """A method of an engine that one of its parts has, under the same name."""

    def __init__(self, part: str) -> None:
        """Look the method up when it is first used, in the attribute ``part`` of the engine."""
        self._part = part

    def __set_name__(self, owner: type, name: str) -> None:
        """Keep the name under which the engine has the method."""
        self._attribute = name

    def __get__(self, engine: Any, owner: type) -> Any:
        """Return the method; the engine finds it by itself from then on."""
        method = getattr(getattr(engine, self._part), self._attribute)
        vars(engine)[self._attribute] = method
        return method


class Engine(ABC):
    """One engine, for one recording.

    What an engine may leave out has a default here.
    """

    description: str
    """"native", or "python" with the reason."""
    threads: ThreadTable
    sequence: EventSequence
    """The numbers of events."""
    notes_failed_ops = False
    """``failed_op`` returns ops that raise, which do not call ``Session.on_failed_op``."""
    take_snapshot: TakeSnapshot | None = None
    """The function that reads Python state in C++, None if there is none."""

    # --- what a session needs ------------------------------------------------------------------

    @abstractmethod
    def make_stacks(self, session: Session) -> Stacks:
        """Return the table of stacks."""

    @abstractmethod
    def open(self, session: Session, outermost: int) -> None:
        """Start the recording."""

    @abstractmethod
    def close(self) -> None:
        """End the recording."""

    @abstractmethod
    def event_count(self) -> int:
        """Return the number of events so far."""

    @abstractmethod
    def begin_recorder_time(self) -> None:
        """Stop the clock of this thread's events: the recorder works."""

    @abstractmethod
    def end_recorder_time(self) -> None:
        """Let the clock run again, once for each time that it was stopped."""

    @abstractmethod
    def recorder_time_ns(self) -> int:
        """Return the time for which the recorder has worked, on all threads."""

    @abstractmethod
    def take_step(self) -> tuple[int, int]:
        """Return number and digest of the ops since the last call."""

    def set_fingerprints(self, on: bool) -> None:  # noqa: B027, FBT001
        """Read the contents of tensors from now on, or no longer; the session has the flag too."""

    @abstractmethod
    def suspend(self, suspended: bool) -> None:  # noqa: FBT001 - called from one place
        """Record nothing of this thread, or again."""

    @abstractmethod
    def enter_hook(self) -> Any:
        """Prepare for a pack hook that runs inside an op; return the state for ``leave_hook``."""

    @abstractmethod
    def leave_hook(self, state: Any, raised: int) -> None:
        """Continue with the op after a pack hook; ``raised`` is the tensor if it failed."""

    @abstractmethod
    def last_op(self) -> tuple[int, str] | None:
        """Return event and name of the op that ended last on this thread, None if none has."""

    @abstractmethod
    def innermost_run(self) -> tuple[int, int] | None:
        """Return backward and node of the innermost run on this thread, None if no node runs."""

    @abstractmethod
    def failed_run(self, backward_id: int) -> int | None:
        """Return the node of an open backward that raised, on whichever thread, None if none."""

    @abstractmethod
    def run_count(self) -> int:
        """Return the number of nodes that run on this thread, one inside the other."""

    @abstractmethod
    def drop_runs(self, count: int) -> None:
        """Forget all runs on this thread but the outermost ones."""

    def flush(
        self,
        session: Session,  # noqa: ARG002
        kinds: Collection[type[Event]] | None,  # noqa: ARG002
        *,
        least: int,  # noqa: ARG002
        compress: bool,  # noqa: ARG002
    ) -> EngineSegment | None:
        """Move events that are not in the log to it; see ``Session.flush``."""
        return None

    # --- tables --------------------------------------------------------------------------------

    @abstractmethod
    def make_tables(self, session: Session) -> Tables:
        """Return the first tables."""

    @abstractmethod
    def make_graph_tables(
        self,
        session: Session,
        *,
        leaves: LeafTable,
        modules: ModuleTable,
        saves: SaveTable,
        functions: CustomFunctionTable,
        gradients: GradientTable,
    ) -> GraphTables:
        """Return the other tables."""

    @abstractmethod
    def make_device_spans(self, session: Session, device_type: str) -> DeviceSpans:
        """Record the times of nodes on devices of a type, and return what times module calls."""

    @abstractmethod
    def wrap_checkpoint_hooks(self, tracer: HookTracer) -> WrapHooks:
        """Return the function that wraps the hooks of checkpoint."""

    @abstractmethod
    def contexts(self, session: Session) -> Iterator[AbstractContextManager[Any]]:
        """Yield the contexts in which operators are observed."""

    def can_remove(self) -> bool:
        """Return whether the contexts can be left now: no dispatch mode was entered later."""
        return True

    @abstractmethod
    def set_origins(self, origins: OpOrigins) -> None:
        """Distinguish operators that compiled regions call from those of the program."""

    # --- long recordings -----------------------------------------------------------------------

    @abstractmethod
    def prune_history(self, first_seq: int) -> None:
        """Forget the ops and writes before an event."""

    @abstractmethod
    def prune(self, used: AbstractSet[int], first_seq: int) -> None:
        """Forget everything dead.

        Args:
            used: ids of tensors that must keep their id while they live.
            first_seq: the oldest event that is kept.
        """

    @abstractmethod
    def prune_arguments(self, used: AbstractSet[int]) -> AbstractSet[int]:
        """Forget the arguments of operators that no event refers to.

        Args:
            used: the ids of those that events refer to.

        Returns:
            The ids of all that were known: an operator may just have used one.
        """

    @abstractmethod
    def live_tensor_ids(self) -> AbstractSet[int]:
        """Return the ids of the tensors that may be seen again."""

    @abstractmethod
    def live_storages(self) -> list[int]:
        """Return one tensor of each storage that is alive."""

    def live_nbytes(self) -> dict[int, int]:
        """Return the bytes of live storages by id; empty unless it is recorded what is freed."""
        return {}

    def emit_freed(self) -> None:  # noqa: B027
        """Record the storages that were freed since the last op, if that is recorded."""

    def failed_op(self) -> tuple[int, list[int]] | None:
        """Return the op that raised last, if its thread has called none since.

        With it, one tensor of each storage that was alive then.
        """
        return None

    @abstractmethod
    def held_saves(self) -> dict[int, int]:
        """Return the saves without hooks that nodes hold, each with its tensor."""

    # --- numbers that are read without an operator ---------------------------------------------

    @abstractmethod
    def ordinary_nbytes(self, gradient: torch.Tensor) -> int:
        """Return the size of a dense gradient on the host that can be read now, or 0."""

    def norm(self, tensor: torch.Tensor) -> float | None:  # noqa: ARG002
        """Return the L2 norm of a tensor, None if operators are to compute it."""
        return None

    def read_number(self, tensor: torch.Tensor) -> float | None:  # noqa: ARG002
        """Return the value of a scalar, None if operators are to read it."""
        return None
