"""The engine that observes operators, the graph and its nodes in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.recorder.engine_interface import Engine, GraphTables, MethodOf, Tables
from autogradviz.recorder.event_writer import EventSequence
from autogradviz.recorder.ops.collectives import observe_waits
from autogradviz.recorder.ops.hashes_norms_and_draws import Fingerprints, RecentOutputs
from autogradviz.recorder.python_engine.device_spans import PythonDeviceSpans
from autogradviz.recorder.python_engine.dispatch_mode import OpMode
from autogradviz.recorder.python_engine.graph_walk import NodeTable
from autogradviz.recorder.python_engine.module_calls import ModuleCallTable
from autogradviz.recorder.python_engine.node_runs import NodeRuns
from autogradviz.recorder.python_engine.op_inputs_and_outputs import ordinary_nbytes
from autogradviz.recorder.python_engine.ops_that_created_nodes import CreatorTable
from autogradviz.recorder.python_engine.program_clock import ProgramClock
from autogradviz.recorder.python_engine.saved_tensors import SaveIds, SlotTable
from autogradviz.recorder.python_engine.stack_table import StackTable
from autogradviz.recorder.python_engine.tensor_ids import TensorTable
from autogradviz.recorder.python_engine.version_table import VersionTable
from autogradviz.recorder.step_digest import StepDigest
from autogradviz.recorder.thread_state import ThreadTable
from autogradviz.recorder.torch_internals.create_subclasses_under_mode import (
    suspended_in_subclass_new,
)
from autogradviz.recorder.torch_internals.private_api import (
    get_current_dispatch_mode,
    get_sequence_nr,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    import torch

    from autogradviz.recorder.backward.custom_function_calls import CustomFunctionTable
    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.engine_interface import WrapHooks
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.ops.op_arguments import OpOrigins
    from autogradviz.recorder.saved_tensors.hooks import HookTracer
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
    from autogradviz.recorder.session import Session


class PythonEngine(Engine):
    """Observes PyTorch with a dispatch mode and hooks before nodes; ``Engine`` has the docs."""

    begin_recorder_time: Any = MethodOf("clock")
    end_recorder_time: Any = MethodOf("clock")

    def __init__(self, reason: str) -> None:
        """Prepare for one recording.

        Args:
            reason: why it is this engine, and not the native one.
        """
        self.description = f"python: {reason}"
        clock = ProgramClock()
        self.clock = clock
        self.sequence = EventSequence(clock.time_ns)
        self.threads = ThreadTable(clock.add)
        clock.set_threads(self.threads)
        self._digest = StepDigest()
        self._stacks: StackTable
        self._tensors: TensorTable
        self._versions: VersionTable
        self._contents: Fingerprints
        self._recent: RecentOutputs
        self._creators: CreatorTable
        self._ids: SaveIds
        self._mode: OpMode | None = None
        self._runs: NodeRuns

    def make_stacks(self, session: Session) -> StackTable:
        """Return the table of stacks."""
        self._stacks = StackTable(session)
        return self._stacks

    def open(self, session: Session, outermost: int) -> None:  # noqa: ARG002
        """Start the recording: the tables are ready."""
        self.threads.local.state.sequence_nr = get_sequence_nr()

    def close(self) -> None:
        """Remove the tensors that are known."""
        self._tensors.close()

    def event_count(self) -> int:
        """Return the number of events so far."""
        return self.sequence.newest + 1

    def recorder_time_ns(self) -> int:
        """Return the time for which the recorder has worked, on all threads."""
        return self.clock.recorder_ns

    def take_step(self) -> tuple[int, int]:
        """Return number and digest of the ops since the last call."""
        return self._digest.take()

    def suspend(self, suspended: bool) -> None:  # noqa: ARG002, FBT001
        """Forget the newest node: no op may pass for the one that created it."""
        self.threads.local.state.sequence_nr = get_sequence_nr()

    def enter_hook(self) -> int:
        """Return autograd's counter before a pack hook.

        The node of the op exists already: the first op in the hook is not one in its forward.
        """
        state = self.threads.local.state
        before = state.sequence_nr
        state.sequence_nr = get_sequence_nr()
        return before

    def leave_hook(self, state: int, raised: int) -> None:  # noqa: ARG002
        """Restore the counter."""
        self.threads.local.state.sequence_nr = state

    def last_op(self) -> tuple[int, str] | None:
        """Return event and name of the op that ended last on this thread, None if none has."""
        return None if self._mode is None else self._mode.last_op()

    def innermost_run(self) -> tuple[int, int] | None:
        """Return backward and node of the innermost run on this thread, None if no node runs."""
        running = self.threads.local.state.running
        return running[-1][:2] if running else None

    def failed_run(self, backward_id: int) -> int | None:
        """Return the node of an open backward that raised, on whichever thread, None if none."""
        return self._runs.failed_run(backward_id)

    def run_count(self) -> int:
        """Return the number of nodes that run on this thread, one inside the other."""
        return len(self.threads.local.state.running)

    def drop_runs(self, count: int) -> None:
        """Forget all runs on this thread but the outermost ones."""
        del self.threads.local.state.running[count:]

    def make_tables(self, session: Session) -> Tables:
        """Return the first tables."""
        self._contents = Fingerprints(session)
        self._tensors = TensorTable(session)
        self._versions = VersionTable(session, self._tensors)
        self._recent = RecentOutputs()
        self._creators = CreatorTable(self._tensors, self._versions)
        self._ids = SaveIds(session, self._tensors, self._creators)
        if session.with_ops:
            self._mode = OpMode(
                session, self._digest, self._stacks, self._tensors, self._versions, self._contents,
                self._creators, self._recent,
            )  # fmt: skip
        if session.stops is not None:
            session.stops.connect(self._tensors, self._recent, self._creators.version_saved)
        return Tables(
            self._tensors, self._versions, self._contents, self._recent, self._creators, self._ids
        )

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
        slots = SlotTable(
            session, self._tensors, self._versions, self._creators, self._ids, saves,
            self._contents,
        )  # fmt: skip
        self._slots = slots
        runs = NodeRuns(
            session, self._tensors, slots, gradients, self._mode, self.clock, self._stacks
        )
        nodes = NodeTable(
            session, self._tensors, leaves, self._creators, slots, functions, runs.on_start
        )
        runs.nodes = nodes
        self._runs = runs
        self._stacks.works_for = runs.works_for
        return GraphTables(nodes, runs, ModuleCallTable(session, modules, self._recent))

    def make_device_spans(self, session: Session, device_type: str) -> PythonDeviceSpans:
        """Return the table of module calls and nodes on devices."""
        self._runs.device_spans = PythonDeviceSpans(session, device_type)
        return self._runs.device_spans

    def wrap_checkpoint_hooks(self, tracer: HookTracer) -> WrapHooks:
        """Return the function that wraps all hooks."""
        return tracer.wrap_in_python

    def contexts(self, session: Session) -> Iterator[AbstractContextManager[Any]]:
        """Yield the contexts in which operators are observed."""
        if self._mode is not None:
            yield suspended_in_subclass_new(self._mode)
            yield observe_waits(session, self._mode.collective_count)
            yield self._mode.active()

    def can_remove(self) -> bool:
        """Return whether the dispatch mode is the innermost one."""
        return self._mode is None or get_current_dispatch_mode() is self._mode

    def set_origins(self, origins: OpOrigins) -> None:
        """Distinguish operators that compiled regions call from those of the program."""
        if self._mode is not None:
            self._mode.compiled_code = origins

    def prune_history(self, first_seq: int) -> None:
        """Forget the ops and writes before an event."""
        self._creators.prune(first_seq)
        self._versions.prune_history(self._tensors.live_storage_ids, first_seq)

    def prune(self, used: AbstractSet[int], first_seq: int) -> None:
        """Forget everything dead."""
        self._tensors.prune(used)
        self._versions.prune(self._tensors.live_storage_ids, first_seq)
        self._creators.prune(first_seq)
        self._stacks.prune()
        self._contents.prune()

    def prune_arguments(self, used: AbstractSet[int]) -> AbstractSet[int]:
        """Forget the arguments of operators that no event refers to."""
        return set() if self._mode is None else self._mode.arguments.prune(used)

    def live_tensor_ids(self) -> AbstractSet[int]:
        """Return the ids of the tensors that may be seen again."""
        return self._tensors.live_ids

    def live_storages(self) -> list[int]:
        """Return one tensor of each storage that is alive."""
        return self._tensors.live_storages()

    def live_nbytes(self) -> dict[int, int]:
        """Return the bytes of live storages by id; empty unless it is recorded what is freed."""
        return {} if self._tensors.freed is None else self._tensors.live_nbytes()

    def emit_freed(self) -> None:
        """Record the storages that were freed since the last op."""
        self._tensors.emit_freed()

    def held_saves(self) -> dict[int, int]:
        """Return the saves without hooks that nodes hold, each with its tensor."""
        return self._slots.held.copy()

    def ordinary_nbytes(self, gradient: torch.Tensor) -> int:
        """Return the bytes of a contiguous real gradient on the host, 0 for any other one."""
        return ordinary_nbytes(gradient)
