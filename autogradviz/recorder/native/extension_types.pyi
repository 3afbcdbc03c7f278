"""The types of the C++ extension (``module.cpp``)."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from types import CodeType
from typing import Any, Protocol

import torch

from autogradviz.recorder.checkpoint.state_walk_snapshot import Snapshot

class Batch(Protocol):
    """Events that were taken from a recording (``decode_events.h``)."""

    def nbytes(self) -> int:
        """Return the size of the events."""

    def counts(self) -> list[int]:
        """Return the number of events of each kind."""

    def decode(self, kinds: list[int]) -> list[list[Any]]:
        """Return the values of all events of some kinds, one row after the other."""

    def decode_defined(self, kind: int, ids: AbstractSet[int]) -> list[Any]:
        """Return the values of definitions of a kind, one row after the other.

        Args:
            kind: a kind of definition, whose first own field is what it defines.
            ids: the definitions of other ids are left out.
        """

    def references(
        self, fields: tuple[tuple[int, int, int], ...], count: int
    ) -> tuple[set[int], ...]:
        """Return the ids in some fields.

        Args:
            fields: for each, the kind of event, its place in the row, and the number of its set.
            count: the number of sets.
        """

    def only(self, kind: int) -> Batch:
        """Return a batch of the events of one kind."""

    def drop_codes(self) -> None:
        """Drop the code objects of the frames."""

    def pack(self) -> bytes:
        """Return the events as bytes, and drop them."""

    def unpack(self, packed: bytes) -> None:
        """Restore the events that ``pack`` returned."""

class Recording(Protocol):
    """One recording in C++ (``recording_object.h``)."""

    # life_cycle_methods.h
    def open(
        self, ops: bool, stacks: bool, fingerprints: bool, norms: bool, memory: bool,
        outermost: int, clone_code: CodeType | None, subclass_codes: tuple[CodeType, ...],
        fake_class: type,
    ) -> None:  # fmt: skip
        """Start the recording; ``outermost`` is the ``id`` of a frame."""

    def is_open(self) -> bool:
        """Return whether the recording is open."""

    def close(self) -> None:
        """End the recording."""

    def start(self) -> None:
        """Observe operators."""

    def stop(self) -> None:
        """Observe operators no more."""

    def attach(self, calls: list[Any], modules: list[Any], regions: list[Any]) -> int:
        """Take the lists of this thread's state; return the number of the thread."""

    def set_fingerprints(self, on: bool) -> None:
        """Read the contents of tensors from now on, or no longer."""

    def suspend(self, suspended: bool) -> None:
        """Record nothing of this thread, or again."""

    def enter_hook(self) -> Any:
        """Prepare for a pack hook; return the state for ``leave_hook``."""

    def leave_hook(self, state: Any, raised: int) -> None:
        """Continue with the op after a pack hook."""

    def set_origins(self, ask: Callable[[], int], overload_code: CodeType) -> None:
        """Call ``ask`` for the origin of an op whose calling code is not known."""

    # event_clock_and_counter_methods.h
    def take_limits(self) -> list[tuple[str, str]]:
        """Take what was not observed: parts of the recorder, and kinds of tensors."""

    def begin_recorder_time(self) -> None:
        """Stop the clock of this thread."""

    def end_recorder_time(self) -> None:
        """Let the clock of this thread run again."""

    def program_time_ns(self, thread: int) -> int:
        """Return the time of an event on this thread, whose number is not needed."""

    def recorder_time_ns(self) -> int:
        """Return the time that the recorder has taken from all threads."""

    def next_seq(self) -> int:
        """Return the number of the next event."""

    def set_due(self, seq: int, on_due: Callable[[int], None] | None) -> None:
        """Call a function for events from a number on."""

    def event_count(self) -> int:
        """Return the number of events."""

    def take_step(self) -> tuple[int, int]:
        """Return number and digest of the ops since the last call."""

    def collective_count(self, group: str) -> int:
        """Return the number of collectives of a process group so far."""

    def last_op(self) -> tuple[int, str] | None:
        """Return event and name of the operator that ended last on this thread."""

    def buffered(self) -> int:
        """Return the size of the events that were not taken."""

    def take(self) -> Batch:
        """Return the events since the last call."""

    # stack_methods.h
    def capture(self) -> int:
        """Return the id of the stack outside the recorder."""

    def intern_stack(self, places: list[tuple[CodeType, int]]) -> int:
        """Return the id of a stack."""

    def live_stacks(self) -> AbstractSet[int]:
        """Return the ids of the stacks that may be captured again."""

    def drop_stacks(self) -> None:
        """Forget all stacks."""

    def custom_stack(self, sequence_nr: int) -> int | None:
        """Return the stack at which a custom Function saved, None if it is unknown."""

    def set_custom_stack(self, sequence_nr: int, stack_id: int) -> None:
        """Set the stack at which a custom Function saved."""

    # table_methods.h
    def intern(self, tensor: torch.Tensor) -> int:
        """Return a tensor's id."""

    def intern_all(self, tensors: list[torch.Tensor]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of tensors, and their versions."""

    def storage_id(self, tensor_id: int) -> int:
        """Return the id of a tensor's storage, NO_ID if it has none."""

    def id_of_storage(self, address: int) -> int:
        """Return the id of the storage at an address, NO_ID if no tensor of it was seen."""

    def live_storages(self) -> list[int]:
        """Return one tensor of each storage that is alive."""

    def live_nbytes(self) -> dict[int, int]:
        """Return the bytes of live storages by id; empty unless memory is recorded."""

    def emit_freed(self) -> None:
        """Record the storages that were freed since the last operator."""

    def failed_op(self) -> tuple[int, list[int]] | None:
        """Return the operator that raised last, if its thread has called none since.

        With it, one tensor of each storage that was alive then.
        """

    def live_tensor_ids(self) -> AbstractSet[int]:
        """Return the ids of the tensors that may be seen again."""

    def fingerprint(self, tensor: torch.Tensor) -> int:
        """Return the fingerprint of a content, NO_ID if it cannot be read."""

    def bumped(self, tensor_id: int, version: int) -> None:
        """Remember a version."""

    def restored(self, tensor_id: int, version: int) -> None:
        """Record that a counter was restored."""

    def recent(self) -> list[torch.Tensor]:
        """Return the most recent results that are alive, the newest first."""

    def record_detach(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """Record an op that PyTorch reports to dispatch modes only."""

    def prune(self, used: set[int], max_windows: int) -> None:
        """Remove dead storages, and the tensors on them that are not in use."""

    def prune_arguments(self, used: AbstractSet[int]) -> set[int]:
        """Forget the arguments that are not in use, and return the ids of all that were known."""

    def prune_history(self, first_seq: int) -> None:
        """Forget the versions before an event."""

    # module_and_graph_methods.h
    def enter_module(self, module_id: int) -> int:
        """Record that a module's forward starts; return the number of open calls before it."""

    def exit_module(self, depth: int, failed: bool) -> bool:
        """Record that module calls ended; return whether none is open."""

    def walk(
        self, roots: list[Any], oldest: int, on_hooked: Callable[[Any, int, int | None, str], int]
    ) -> tuple[list[tuple[int, torch.Tensor]], list[tuple[int, Any]], list[str]]:
        """Record the nodes of a graph.

        Returns:
            Unknown leaves, nodes of custom Functions, and slots whose tensors were not found.
        """

    def node_id(self, node: Any) -> int:
        """Return a node's id."""

    def is_new(self, node: Any) -> bool:
        """Return whether no walk has reached a node yet."""

    def forget(self, roots: list[Any]) -> None:
        """Forget the nodes that ``roots`` reach."""

    def forget_leaf(self, tensor_id: int) -> None:
        """Return a leaf again when a walk reaches it."""

    # saved_tensor_and_backward_methods.h
    def record_packing(
        self, tensor: torch.Tensor, packed_by: str, region: int | None, recompute: int | None,
        position: int | None, /,
    ) -> tuple[int, int | None, int]:  # fmt: skip
        """Record a save through hooks; return its id, the version and the sequence number."""

    def next_saved_id(self) -> int:
        """Return the id of a new save."""

    def saved_count(self) -> int:
        """Return the number of saves."""

    def held_saves(self) -> dict[int, int]:
        """Return the saves without hooks that nodes hold, each with its tensor."""

    def take_released(self) -> list[int]:
        """Return the saves that were released since the last call."""

    def begin_backward(self, backward_id: int, keep_graph: bool) -> None:
        """Record the nodes that run from now on."""

    def end_backward(self, backward_id: int, failed: bool) -> dict[int, int]:
        """Finish the last nodes; return the leaves that were reached, with the backward."""

    def hook_runs(self) -> None:
        """Record that the last node has finished, if the first hook of another one runs."""

    def current_node(self) -> tuple[int | None, int | None]:
        """Return the backward and the node that run on this thread."""

    def innermost_run(self) -> tuple[int, int] | None:
        """Return the backward and the node of the innermost run on this thread."""

    def failed_run(self, backward_id: int) -> int | None:
        """Return the node of a backward that raised, on whichever thread."""

    def run_count(self) -> int:
        """Return the number of runs on this thread."""

    def drop_runs(self, count: int) -> None:
        """Forget all runs on this thread but the first ones."""

    # device_span_methods.h
    def time_device(self, kind: str) -> None:
        """Record the time of nodes on devices of a type, "cuda"."""

    def begin_span(self, call_id: int, index: int) -> None:
        """Record that a module call begins on a device."""

    def end_span(self, call_id: int) -> None:
        """Record that a module call ends."""

    def waiting_spans(self) -> int:
        """Return the number of spans that have ended and were not read."""

    def take_spans(self, wait: bool) -> tuple[list[tuple[Any, ...]], str]:
        """Return the spans that the device has passed, or all, and what failed."""

    # checkpoint_hooks.h
    def wrap_hooks(
        self, recording: Any, pack: Any, unpack: Any, packed_by: str, region: int | None,
        recompute: int | None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return wrappers of a pair of hooks; ``recording`` is a ``SessionRef``."""

    def set_tracer(self, tracer: Any, packed_objects: dict[int, Any]) -> None:
        """Set the object that hooks report to, and the packed objects that Python knows."""

    def discard_dead_packed(self, packed: Any) -> None:
        """Forget dead saves whose packed object had the address of a new one."""

    def release_packed(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""

    def prune_packed(self, first_saved_id: int) -> None:
        """Forget saves with smaller ids."""

class Extension(Protocol):
    """The extension."""

    TracingHook: type
    """The class of wrapped hooks."""

    def Recording(self) -> Recording:  # noqa: N802 - a class
        """Return a recording that is not open."""

    def code(self, address: int) -> CodeType:
        """Return the code object of a frame that was recorded."""

    def line_of(self, code: CodeType, offset: int) -> int | None:
        """Return the line of an instruction."""

    def field_counts(self) -> tuple[int, ...]:
        """Return the number of fields of each kind of event that C++ emits."""

    def norm(self, tensor: torch.Tensor) -> float | None:
        """Return the L2 norm of a dense tensor on the host, None for another one."""

    def read_number(self, tensor: torch.Tensor) -> float | None:
        """Return the value of a scalar on the host, None for another tensor."""

    def ordinary_nbytes(self, tensor: torch.Tensor) -> int:
        """Return the bytes of a contiguous real tensor on the host, 0 for another one."""

    def take_snapshot(
        self, values: list[Any], roots: int, visits: list[Any], tensors: list[Any],
        by_facts: list[Any], others: list[Any], replaceable: list[int],
        questions: tuple[Any, ...],
    ) -> Snapshot | None:  # fmt: skip
        """Return a snapshot of a walk (``state_walk_snapshot.h``)."""
