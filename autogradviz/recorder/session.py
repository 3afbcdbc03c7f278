"""The state and services that all hook points of one recording share.

A session knows the log, the event numbers, the threads and the stacks, the options, and the
failures. It knows no table: those are built on top of it, each with the tables that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from autogradviz.event_log import Log
from autogradviz.events import NO_ID, RecorderFailed, RecorderLimited
from autogradviz.recorder.recorder_failures import Failures
from autogradviz.recorder.source_around_lines import SourceReader
from autogradviz.recorder.torch_internals.is_compiling import is_compiling, is_under_tracing_mode
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.patches import hide_from_compiler
from autogradviz.recorder.torch_internals.unreadable_tensors import LIMITS, is_fake, unread_kind
from autogradviz.support.defer_and_redeliver_signals import signal_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import torch

    from autogradviz.event_log.log import EngineSegment
    from autogradviz.events import Event
    from autogradviz.recorder.engine_interface import DeviceSpans, Engine

T = TypeVar("T")

_UNREPORTED: Final = "it failed for lack of memory, or near the recursion limit"


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
        engine: Engine,
        *,
        ops: bool,
        stacks: bool,
        fingerprints: bool,
        norms: bool = False,
        memory: bool = False,
    ) -> None:
        """Prepare a recording; nothing is recorded before ``open``.

        Args:
            engine: observes operators, the graph and saved tensors.
            ops: operators are recorded.
            stacks: events carry Python stacks.
            fingerprints: events carry hashes of tensor contents.
            norms: sums and norms of the outputs of ops are recorded.
            memory: storages that are freed are recorded.
        """
        self.engine = engine
        self.with_ops = ops
        self.with_stacks = stacks
        self.with_fingerprints = fingerprints
        self.with_norms = norms
        self.is_open = False
        self.stops: Any = None
        """The ``StopTable``, if some events are to open the debugger."""
        self.verifier: Any = None
        """The ``Verifier``, if gradients are verified."""
        self.addresses: Any = None
        """The ``AddressTable``, if the addresses of saved tensors are recorded."""
        self.with_addresses = False
        self.on_failed_op: Callable[[BaseException, int, int | None], None] | None = None
        """Called with an exception, the event of the op that raised it, and its stack."""
        self.with_memory = memory
        """Storages that are freed are recorded."""
        self.fake_mode: object = None
        """Of the live tensors, only the fake ones of this mode are, if there is one."""
        self.with_device_time = False
        self.device_spans: DeviceSpans | None = None
        """Times module calls on the device, if that is recorded and there is one."""
        self.log = Log()
        self.sequence = engine.sequence
        self.threads = engine.threads
        self.source = SourceReader(self.threads, self.emitter)
        self.stacks = engine.make_stacks(self)
        self.begin_recorder_time = engine.begin_recorder_time
        self.end_recorder_time = engine.end_recorder_time
        self.failures = Failures()
        self._unreported: set[str] = set()
        self._refs: list[SessionRef[Any]] = []
        self._emitters: dict[type[Event], Callable[..., int]] = {}
        self._limits: set[tuple[str, str]] = set()

    def open(self, outermost: int) -> None:
        """Start recording.

        Args:
            outermost: ``id`` of the frame that opened the recording; stacks end there.
        """
        self.engine.open(self, outermost)
        self.is_open = True
        self.stacks.outermost = outermost

    def close(self) -> None:
        """Stop recording, and clear all references to parts of the recorder."""
        self.is_open = False
        for ref in self._refs:
            ref.target = None
        self.engine.close()

    def report_failed_threads(self) -> None:
        """Record that nothing of some threads was recorded."""
        for error in self.threads.failures:
            self.fail("threads", error)

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

    def set_fingerprints(self, on: bool) -> None:  # noqa: FBT001 - the flag of the engine, too
        """Record fingerprints of contents from now on, or no longer."""
        self.with_fingerprints = on
        self.engine.set_fingerprints(on)

    def take_step(self) -> tuple[int | None, int | None]:
        """Return number and digest of the ops since the last call; None if they are unknown."""
        return self.engine.take_step() if self.with_ops else (None, None)

    @property
    def options(self) -> tuple[str, ...]:
        """The options that are on, such as "ops" and "verify"; the engine is the last one.

        That is "native", or "python" with the reason: "python: it was chosen".
        """
        names = ("ops", "stacks", "fingerprints", "norms", "memory")
        enabled = tuple(name for name in names if getattr(self, f"with_{name}"))
        if self.with_addresses:
            enabled += ("annotate_memory",)
        if self.with_device_time:
            enabled += ("device_time",)
        if self.verifier is not None:
            enabled += ("verify",)
        return (*enabled, self.engine.description)

    @property
    def event_count(self) -> int:
        """The number of events so far, which is the number of the next one; 0 while closed."""
        return self.engine.event_count()

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

    def flush(
        self,
        kinds: Collection[type[Event]] | None = None,
        *,
        least: int = 0,
        compress: bool = False,
    ) -> EngineSegment | None:
        """Move the events that the engine holds to the log.

        Args:
            kinds: of which the rows are decoded; None for all. The other rows become a segment of
                the log, which is returned and is decoded when it is read.
            least: the number of bytes from which on it is worth doing.
            compress: compress the segment.
        """
        return self.engine.flush(self, kinds, least=least, compress=compress)

    def enter_hook(self) -> Any:
        """Prepare for a pack hook that runs inside an op; return the state for ``leave_hook``."""
        return self.engine.enter_hook()

    def leave_hook(self, state: Any, raised: int = NO_ID) -> None:
        """Continue with the op after a pack hook.

        The op's node is yet to be created: no op in the hook may pass for the one that creates it.

        Args:
            state: that ``enter_hook`` returned.
            raised: the tensor that the hook was to pack, if it raised an exception.
        """
        if self.is_open:
            self.engine.leave_hook(state, raised)

    def limit(self, hook_point: str, message: str, *, with_stack: bool = False) -> None:
        """Record, once, that the recorder does not observe something.

        Args:
            hook_point: the part of the recorder.
            message: what is not observed.
            with_stack: the first line at which it happened belongs to the message.
        """
        if self.is_open and (hook_point, message) not in self._limits:
            self._limits.add((hook_point, message))
            stack_id = self.stack_id() if with_stack else None
            self.emit(RecorderLimited, hook_point, message, stack_id=stack_id)

    def could_not_read(self, what: str, tensor: torch.Tensor) -> None:
        """Record, once for each kind of tensor, that something is not read from its entries.

        Call it with function overrides disabled.

        Args:
            what: "fingerprints", "norms" or "losses".
            tensor: of the kind.
        """
        if self.fake_mode is not None and is_fake(tensor, self.fake_mode):
            return  # a plan, which says so once
        kind = unread_kind(tensor)
        if kind:
            self.limit(what, LIMITS[what].format(kind=kind))

    def time_ns(self) -> int:
        """Return the time of an event on this thread."""
        return self.sequence.time_ns(self.threads.local.state.number)

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
        self.engine.suspend(suspended)

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
        self.begin_recorder_time()
        try:
            return work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            self.fail(hook_point, error)
            return None
        finally:
            self.end_recorder_time()

    @skip_dynamo_recursive
    def always_guarded(self, hook_point: str, work: Callable[..., T], *args: Any) -> T | None:
        """Call a function like ``guarded``, also while this thread traces."""
        if not self.is_open:
            return None
        self.begin_recorder_time()
        try:
            return work(*args)
        except Exception as error:  # noqa: BLE001
            self.fail(hook_point, error)
            return None
        finally:
            self.end_recorder_time()

    def fail(self, hook_point: str, error: Exception) -> None:
        """Record that a hook point failed; re-raise an exception of a signal handler."""
        if signal_behind(error) is not None:
            raise error
        try:
            message = f"{type(error).__name__}: {error}".splitlines()[0]
        except Exception as other:  # the text of the user's exception, or no memory
            if signal_behind(other) is not None:
                raise
            message = type(error).__name__
        try:
            if self.failures.add(hook_point, message):
                self.emit(RecorderFailed, hook_point, message)
        except Exception as other:  # no memory, or no frame is left for a call
            self._unreported.add(hook_point)
            if signal_behind(other) is not None:
                raise

    def report_failures(self) -> None:
        """Report the failures that could not be reported when they occurred."""
        for hook_point in self._unreported:
            if self.failures.add(hook_point, _UNREPORTED):
                self.emit(RecorderFailed, hook_point, _UNREPORTED)
        self._unreported.clear()
