"""One recording: installs every seam, hears from them all, and removes them.

Laws: observing changes nothing, holds nothing, and never breaks the user's step. Whatever goes
wrong in here becomes a ``RecorderFailed`` event and one warning when the recording ends.
"""

from __future__ import annotations

import platform
import sys
import time
from contextlib import ExitStack
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from autogradviz._version import __version__
from autogradviz.errors import RecordingStateError
from autogradviz.event_log import Log
from autogradviz.events import (
    NO_ID,
    Event,
    RecorderFailed,
    RecorderLimited,
    RecordingEnded,
    RecordingStarted,
)
from autogradviz.recorder.checkpoint.saved_arguments import ArgumentTable
from autogradviz.recorder.checkpoint.state_diff import StateTable
from autogradviz.recorder.ending import record_error, walk_live_outputs
from autogradviz.recorder.engine.backward import BackwardTable
from autogradviz.recorder.engine.graph_walk import NodeTable
from autogradviz.recorder.engine.hooks import HookTable
from autogradviz.recorder.engine.leaf_grads import LeafTable
from autogradviz.recorder.engine.recent_outputs import RecentOutputs
from autogradviz.recorder.event_writer import EventSequence
from autogradviz.recorder.failures import Failures
from autogradviz.recorder.ids.stacks import StackTable
from autogradviz.recorder.ids.tensors import TensorTable
from autogradviz.recorder.ids.versions import VersionTable
from autogradviz.recorder.install import claim, install_seams, release
from autogradviz.recorder.modules import ModuleTable
from autogradviz.recorder.ops.dispatch_mode import OpMode
from autogradviz.recorder.ops.fingerprints import fingerprint
from autogradviz.recorder.retention.flight_recorder import open_keeper
from autogradviz.recorder.retention.steps import StepTable
from autogradviz.recorder.saved_tensors.hook_pairs import RegionTable
from autogradviz.recorder.saved_tensors.node_slots import SlotTable
from autogradviz.recorder.saved_tensors.registry import SaveTable
from autogradviz.recorder.threads import ThreadTable
from autogradviz.recorder.torch_internals.dynamo import hidden
from autogradviz.recorder.torch_internals.lazy_backend import NO_OPS_WITH_LAZY, has_lazy_backend
from autogradviz.recorder.torch_internals.private_api import require_seams
from autogradviz.signals import signal_behind

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import PathLike
    from autogradviz.recorder.retention.compaction import RetentionPolicy

T = TypeVar("T")


class RecorderRef:
    """What outlives a recording holds this: ``recorder`` is None once it has ended."""

    __slots__ = ("recorder",)

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder = recorder


class Recorder:
    """Records PyTorch on eager CPU and CUDA into a log."""

    def __init__(
        self,
        *,
        ops: bool = True,
        stacks: bool = True,
        fingerprints: bool = False,
        keep_steps: int | None = None,
        path: PathLike | None = None,
    ) -> None:
        self.log = Log()
        self.gate = RecorderRef(None)
        self._refuses_ops = ops and has_lazy_backend()
        self.with_ops = ops = ops and not self._refuses_ops
        self.with_stacks = stacks
        self.with_marks = stacks and ops  # without ops stacks are too few to walk towards them
        self.with_fingerprints = fingerprints
        self.tally = EventSequence(self._filled)
        self.contents: set[int] = set()  # fingerprints that were looked at for NaN
        self.limited = False
        self._emit: dict[type[Event], Callable[..., int]] = {}
        self.failures = Failures()
        self._installed = ExitStack()
        self.newest = RecentOutputs()
        self.threads = ThreadTable()
        self.stacks = StackTable(self)
        self.tensors = TensorTable(self)
        self.versions = VersionTable(self)
        self.saves = SaveTable(self)
        self.nodes = NodeTable(self)
        self.slots = SlotTable(self)
        self.hooks = HookTable(self)
        self.backwards = BackwardTable(self)
        self.leaves = LeafTable(self)
        self.regions = RegionTable(self)
        self.modules = ModuleTable(self)
        self.state = StateTable(self)
        self.arguments = ArgumentTable(self)
        self.mode = OpMode(self) if ops else None
        self.steps = StepTable(self)
        self._keep_steps = keep_steps
        self._path = path
        self.keeper: RetentionPolicy | None = None

    def start(self, model: torch.nn.Module | None, outermost: int) -> None:
        """Install every seam.

        Args:
            model: gives names to modules and parameters, or None.
            outermost: ``id`` of the frame that opened the recording; stacks end there.
        """
        require_seams()
        claim(self)
        try:
            self._begin(model, outermost)
            if self._refuses_ops:
                self.emit(RecorderLimited, "ops", NO_OPS_WITH_LAZY)
            self._installed = install_seams(self)
        except BaseException:
            if self.keeper is not None:
                self.keeper.abandon()
            self._close()
            raise

    def _begin(self, model: torch.nn.Module | None, outermost: int) -> None:
        self.gate.recorder = self
        self.stacks.outermost = outermost
        self.threads.state().sequence_nr = torch._C._autograd._get_sequence_nr()  # noqa: SLF001
        options = [
            name for name in ("ops", "stacks", "fingerprints") if getattr(self, f"with_{name}")
        ]
        self.emit(
            RecordingStarted,
            time.time_ns(),
            __version__,
            str(torch.__version__),
            platform.python_version(),
            None if model is None else type(model).__name__,
            tuple(options),
        )
        self.keeper = open_keeper(self, self._keep_steps, self._path)
        if model is not None:
            self.guarded("modules", self.modules.add_root, model, "")

    def stop(self, error: BaseException | None) -> Log:
        """Remove every seam and return the log.

        Args:
            error: the exception that is leaving the recorded block, or None.
        """
        try:
            self._installed.close()
            self.guarded("nodes", walk_live_outputs, self)
            self.guarded("leaves", self.leaves.read)
            if error is not None:
                self.guarded("error", record_error, self, error)
            if self.keeper is not None:
                self.keeper.write()
            self._end(self.log)
            if self.keeper is not None:
                self.keeper.finish()
        finally:
            self._close()
        self.log.sort()
        return self.log

    def _end(self, log: Log) -> None:
        """Say what a log lacks, and that it ends."""
        keeper = self.keeper
        lost = None if keeper is None else keeper.lost(log)
        if lost is not None:
            self._append_to(log, RecorderLimited, "keep_steps", lost)
        on_disk = keeper.dropped if keeper is not None and lost is None else 0
        self._append_to(log, RecordingEnded, on_disk + len(log))

    def _append_to(self, log: Log, kind: type[Event], *values: Any) -> None:
        now, thread = perf_counter_ns() - self.tally.began_ns, self.threads.state().number
        log.extend_rows(kind, [(self.tally.next(), now, thread, None, *values)])

    def held(self) -> Log:
        """Return a log of what is kept now; the recording goes on, unless in a forked child."""
        if self.gate.recorder is None:
            message = "this process was forked while recording; the trace is its parent's"
            raise RecordingStateError(message)
        log = self.log.copy()
        log.sort()
        self._end(log)
        return log

    def _close(self) -> None:
        self.gate.recorder = None
        self.tensors.close()
        release(self)

    def detach_after_fork(self) -> None:
        """Record nothing more: this process was forked from the one that records."""
        self.gate.recorder = None
        if self.keeper is not None:
            self.keeper.abandon()
        self._installed.close()

    def snapshot(self, model: torch.nn.Module | None, roots: list[Any]) -> Log:
        """Return a log of the graphs behind some nodes, without recording anything.

        Args:
            model: gives names to parameters, or None.
            roots: autograd nodes.
        """
        self.with_ops = self.with_stacks = False
        try:
            self._begin(model, 0)
            self.tally.due = sys.maxsize  # nothing grows on: what is sealed would be opened at once
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                self.nodes.walk(roots)
            self.emit(RecordingEnded, self.event_count)
            self.gate.recorder = None
            self.nodes.untag(roots)
        finally:
            self.gate.recorder = None
            self.tensors.close()
        self.log.sort()
        return self.log

    @property
    def event_count(self) -> int:
        """How many events there were."""
        return self.tally.newest + 1

    def _filled(self, seq: int) -> None:
        if self.keeper is not None:
            self.keeper.filled(seq)

    def emit(
        self,
        kind: type[Event],
        *values: Any,
        stack_id: int | None = None,
        thread: int | None = None,
    ) -> None:
        """Append one event; ``values`` are its own fields, in their order."""
        if thread is None:
            thread = self.threads.state().number
        tell = self._emit.get(kind) or self._emit.setdefault(kind, self.emitter(kind))
        tell(thread, stack_id, *values)

    def emitter(self, kind: type[Event]) -> Callable[..., int]:
        """Return the function that appends one event of a kind, and returns its number.

        It takes the thread, the stack and the event's own fields, in their order.
        """
        return self.tally.emitter(self.log, kind)

    @hidden
    def guarded(self, seam: str, work: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Do some recording; what fails is told and never reaches the user's step."""
        if self.gate.recorder is None:  # hooks may outlive the recording, in a forked child too
            return None
        try:
            return work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            self.fail(seam, error)
            return None

    def fail(self, seam: str, error: Exception) -> None:
        """Record that a seam failed; what a signal's handler raised is the program's own."""
        if signal_behind(error) is not None:
            raise error
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        if self.failures.add(seam, message):
            self.emit(RecorderFailed, seam, message)

    def hash_of(self, tensor: torch.Tensor) -> int | None:
        """Return a fingerprint of a tensor's content, None unless fingerprints are recorded."""
        found = fingerprint(self, tensor) if self.with_fingerprints else NO_ID
        return None if found == NO_ID else found
