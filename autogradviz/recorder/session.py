"""The state and services that all hook points of one recording share.

A session knows the log, the event numbers, the threads and the stacks, the options, and the
failures. It knows no table: those are built on top of it, each with the tables that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autogradviz.event_log import Log
from autogradviz.events import NO_ID, RecorderFailed
from autogradviz.recorder.event_writer import EventSequence
from autogradviz.recorder.python_stacks import StackTable
from autogradviz.recorder.recorder_failures import Failures
from autogradviz.recorder.step_digest import StepDigest
from autogradviz.recorder.thread_state import ThreadTable
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.patch_functions import hide_from_compiler
from autogradviz.recorder.torch_internals.private_api import get_sequence_nr
from autogradviz.recorder.torch_internals.tracing_state import is_compiling, is_under_tracing_mode
from autogradviz.support.defer_signals import signal_behind

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log.log_segments import Segment
    from autogradviz.events import Event

T = TypeVar("T")


def _nothing(*_kinds: object, **_options: object) -> None:
    """Do nothing: all events are in the log."""


class SessionRef(Generic[T]):
    """A reference held by objects that may outlive the recording: hooks, and tags on nodes.

    ``target`` is None once the recording has ended, so that such an object neither records nor
    keeps the recording in memory.
    """

    __slots__ = ("target",)

    def __init__(self, target: T) -> None:
        self.target: T | None = target


class Session:
    """One recording, as its hook points see it."""

    def __init__(
        self,
        *,
        ops: bool,
        stacks: bool,
        fingerprints: bool,
        norms: bool = False,
        native: Any = None,
        engine_reason: str = "",
    ) -> None:
        """Prepare a recording; nothing is recorded before ``open``.

        Args:
            ops: operators are recorded.
            stacks: events carry Python stacks.
            fingerprints: events carry hashes of tensor contents.
            norms: sums and norms of the outputs of ops are recorded.
            native: the ``NativeServices``, if C++ observes operators.
            engine_reason: why it does not.
        """
        self.native = native
        self._engine_reason = engine_reason
        self.with_ops = ops
        self.with_stacks = stacks
        # Marks shorten walks in Python; without ops too few stacks are captured to pay for them.
        self.with_marks = stacks and ops and native is None
        self.with_fingerprints = fingerprints
        self.with_norms = norms
        self.is_open = False
        self.stops: Any = None
        """The ``StopTable``, if some events are to open the debugger."""
        self.log = Log()
        self.flush: Callable[..., Segment | None] = _nothing
        """Move the events that C++ holds to the log.

        Rows of some kinds, or of all kinds if none is named, are decoded. The others become a
        segment of the log, which is returned and is decoded when it is read. ``least`` is the
        number of bytes from which on it is worth doing, and ``compress`` compresses the segment.
        """
        if native is None:
            self.sequence = EventSequence()
            self.threads = ThreadTable()
            self.stacks = StackTable(self.threads, self.emitter)
        else:
            self.sequence = native.make_sequence()
            self.threads = native.make_threads()
            self.stacks = native.make_stacks(self.threads, self.emitter)
        self.failures = Failures()
        self.digest = StepDigest()
        self._refs: list[SessionRef[Any]] = []
        self._emitters: dict[type[Event], Callable[..., int]] = {}

    def open(self, outermost: int) -> None:
        """Start recording.

        Args:
            outermost: ``id`` of the frame that opened the recording; stacks end there.
        """
        if self.native is not None:
            self.native.open(self, outermost)
        self.is_open = True
        self.stacks.outermost = outermost

    def close(self) -> None:
        """Stop recording, and clear all references to parts of the recorder."""
        self.is_open = False
        for ref in self._refs:
            ref.target = None
        if self.native is not None:
            self.native.close()

    def detach_after_fork(self) -> None:
        """Stop recording in a forked child, where C++ has stopped already."""
        self.is_open = False
        for ref in self._refs:
            ref.target = None

    def ref(self, target: T) -> SessionRef[T]:
        """Return a reference for objects that may outlive the recording."""
        ref = SessionRef(target)
        self._refs.append(ref)
        return ref

    def take_step(self) -> tuple[int | None, int | None]:
        """Return number and digest of the ops since the last call; None if they are unknown."""
        if not self.with_ops:
            return None, None
        if self.native is not None:
            found: tuple[int, int] = self.native.recording.take_step()
            return found
        return self.digest.take()

    @property
    def options(self) -> tuple[str, ...]:
        """The options that are on: "ops", "stacks", "fingerprints", "norms"; and the engine.

        That is "native", or "python" with the reason: "python: it was chosen".
        """
        names = ("ops", "stacks", "fingerprints", "norms")
        enabled = tuple(name for name in names if getattr(self, f"with_{name}"))
        engine = "native" if self.native is not None else f"python: {self._engine_reason}"
        return (*enabled, engine)

    @property
    def event_count(self) -> int:
        """The number of events so far, which is the number of the next one; 0 while closed."""
        if self.native is not None:
            return int(self.native.event_count()) if self.is_open else 0
        return self.sequence.newest + 1

    def emit(
        self,
        kind: type[Event],
        *values: Any,
        stack_id: int | None = None,
        thread: int | None = None,
    ) -> None:
        """Append one event; ``values`` are its own fields, in their order."""
        if thread is None:
            thread = self.threads.local.state.number
        emit = self._emitters.get(kind) or self._emitters.setdefault(kind, self.emitter(kind))
        emit(thread, stack_id, *values)

    def emitter(self, kind: type[Event]) -> Callable[..., int]:
        """Return the function that appends one event of a kind and returns its number.

        It takes the thread, the stack and the event's own fields, in their order.
        """
        return self.sequence.emitter(self.log, kind)

    def enter_hook(self) -> Any:
        """Prepare for a pack hook that runs inside an op; return the state for ``leave_hook``."""
        if self.native is not None:
            return self.native.enter_hook()
        state = self.threads.local.state
        before = state.sequence_nr
        # The node of the op exists already: the first op in the hook is not one in its forward.
        state.sequence_nr = get_sequence_nr()
        return before

    def leave_hook(self, state: Any, raised: int = NO_ID) -> None:
        """Continue with the op after a pack hook.

        The op's node is yet to be created: no op in the hook may pass for the one that creates it.

        Args:
            state: that ``enter_hook`` returned.
            raised: the tensor that the hook was to pack, if it raised an exception.
        """
        if self.native is None:
            self.threads.local.state.sequence_nr = state
        elif self.is_open:
            self.native.leave_hook(state, raised)

    def stack_id(self) -> int | None:
        """Return the id of the user's current stack, None if stacks are not recorded."""
        return self.stacks.capture_outside() if self.with_stacks else None

    def compiling_changed(self) -> None:
        """Suspend the recording of this thread while a compiler runs on it."""
        if not self.is_open:
            return
        state, suspended = self.threads.local.state, is_compiling()
        if suspended == state.suspended:
            return
        state.suspended = suspended
        hide_from_compiler(suspended)
        # No op may pass for the one that created the last node of a traced graph.
        state.sequence_nr = get_sequence_nr()
        if self.native is not None:
            self.native.recording.suspend(suspended)

    @skip_dynamo_recursive
    def observes(self) -> bool:
        """Return whether this thread is recorded: it is not while it traces for a compiler."""
        return not (self.threads.local.state.suspended or is_under_tracing_mode())

    @skip_dynamo_recursive
    def guarded(
        self, hook_point: str, work: Callable[..., T], *args: Any, **kwargs: Any
    ) -> T | None:
        """Call a function that records what this thread runs, unless it only traces.

        A failure is recorded; it must not reach the user's step.
        """
        # Hooks may outlive the recording, in a forked child too.
        if not self.is_open or not self.observes():
            return None
        try:
            return work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            self.fail(hook_point, error)
            return None

    @skip_dynamo_recursive
    def always_guarded(self, hook_point: str, work: Callable[..., object], *args: Any) -> None:
        """Call a function like ``guarded``, also while this thread traces."""
        if self.is_open:
            try:
                work(*args)
            except Exception as error:  # noqa: BLE001
                self.fail(hook_point, error)

    def fail(self, hook_point: str, error: Exception) -> None:
        """Record that a hook point failed; re-raise an exception of a signal handler."""
        if signal_behind(error) is not None:
            raise error
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        if self.failures.add(hook_point, message):
            self.emit(RecorderFailed, hook_point, message)
