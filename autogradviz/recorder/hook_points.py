"""All hook points of a recording: their tables, and the order of installation.

The engine (``engine_interface.py``) observes operators, the graph and saved tensors; everything
else is here once for both engines.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from autogradviz.events import ErrorRaised
from autogradviz.recorder.backward.backward_calls import BackwardTable, observe_backward
from autogradviz.recorder.backward.custom_function_calls import (
    CustomFunctionTable,
    observe_custom_functions,
)
from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
from autogradviz.recorder.backward.training_steps import StepTable, observe_optimizers
from autogradviz.recorder.backward.user_hooks import HookTable, observe_hooks
from autogradviz.recorder.checkpoint.non_reentrant_regions import (
    ArgumentTable,
    CheckpointPairs,
    RegionTable,
    observe_checkpoint_frames,
)
from autogradviz.recorder.checkpoint.reentrant_regions import ReentrantRegions, observe_reentrant
from autogradviz.recorder.checkpoint.selective_checkpoint import observe_policies
from autogradviz.recorder.checkpoint.state_diff import StateTable, observe_attributes
from autogradviz.recorder.compile.install_compiler_hooks import CompilerObserver
from autogradviz.recorder.device_times import DeviceTimes, device_type
from autogradviz.recorder.leaf_tensors_and_versions import (
    LeafTable,
    observe_increments,
    observe_requires_grad,
    observe_resizes,
    observe_restored_versions,
)
from autogradviz.recorder.modes_and_transforms import observe_modes, observe_transforms
from autogradviz.recorder.module_names_and_calls import ModuleTable, observe_modules
from autogradviz.recorder.observe_placements import observe_placements
from autogradviz.recorder.observe_sharded_parameters import observe_sharded_parameters
from autogradviz.recorder.out_of_memory.failed_allocations import (
    AllocationFailures,
    observe_allocation_failures,
)
from autogradviz.recorder.out_of_memory.live_memory import LiveMemory
from autogradviz.recorder.owners.find_owners import HeldGraphs
from autogradviz.recorder.owners.memory_holders import MemoryHolders
from autogradviz.recorder.owners.tensors_alive_at_step_ends import TensorsAliveAtStepEnds
from autogradviz.recorder.raised_errors import describe, explained_error
from autogradviz.recorder.saved_tensors.addresses_for_memory_snapshots import AddressTable
from autogradviz.recorder.saved_tensors.hooks import (
    HookPairTable,
    HookTracer,
    observe_disabled_hooks,
    observe_hook_pairs,
)
from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
from autogradviz.recorder.stream_order import observe_stream_order
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_recorder_frames
from autogradviz.recorder.torch_internals.patches import (
    forget_fake_tensor,
    released_before_swap,
)
from autogradviz.recorder.torch_internals.private_api import (
    CheckpointHook,
    DisableTorchFunction,
    RecomputationHook,
)
from autogradviz.recorder.verify.verify_each_node_as_it_runs import observe_functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    import torch

    from autogradviz.events.field_types import Target
    from autogradviz.recorder.saved_tensors.hooks import PairHandler
    from autogradviz.recorder.session import Session


class HookPoints:
    """The hook points of one recording, and the tables that they fill."""

    def __init__(self, session: Session) -> None:
        self._session = session
        engine = self._engine = session.engine
        tables = engine.make_tables(session)
        self.tensors, self.versions, self.recent = tables.tensors, tables.versions, tables.recent
        self.leaves = LeafTable(session, self.tensors)
        self.modules = ModuleTable(session, self.tensors, self.leaves)
        if session.with_addresses:
            session.addresses = AddressTable(session, self.tensors, self.leaves)
            session.addresses.module_name = self.modules.name_of
        self.saves = SaveTable(session, self.tensors, tables.saves, tables.contents)
        self.tracer = HookTracer(session, self.tensors, self.saves, tables.contents)
        self.pairs = HookPairTable(session)
        self.gradients = GradientTable(session, self.tensors, self.leaves)
        self.steps = StepTable(session, self.tensors, self.gradients)
        self._held_graphs = HeldGraphs(session, self.steps)
        self._alive_at_step_ends = TensorsAliveAtStepEnds(session, engine)
        self.steps.listeners.append(self._alive_at_step_ends.read)
        self.functions = CustomFunctionTable(session, self.tensors, tables.functions)
        graph = engine.make_graph_tables(
            session, leaves=self.leaves, modules=self.modules, saves=self.saves,
            functions=self.functions, gradients=self.gradients,
        )  # fmt: skip
        self.nodes, self.runs, self.module_calls = graph.nodes, graph.runs, graph.module_calls
        self.failures = AllocationFailures(
            session, self.tensors, self.modules, self._walk_before_backward,
            self.gradients.may_read,
        )  # fmt: skip
        self.live_memory: LiveMemory | None = None
        if session.with_memory:
            self.live_memory = LiveMemory(
                session, self.tensors, self.leaves, self.gradients.may_read
            )
        self.memory_holders = MemoryHolders(session, self.tensors, self.live_memory)
        self.failures.on_held = self.memory_holders.read
        self.device_times: DeviceTimes | None = None
        if session.with_device_time:
            kind = device_type()
            if kind is not None:
                session.device_spans = engine.make_device_spans(session, kind)
            self.device_times = self.module_calls.times = DeviceTimes(session, kind)
        self.hooks = HookTable(session, self.modules, self.runs)
        self.backwards = BackwardTable(
            session, self.tensors, self.leaves, self.gradients, self.nodes, self.runs, self.hooks,
            self.steps,
        )  # fmt: skip
        self.backwards.on_error = self.failures.raised
        if self.live_memory is not None:
            self.backwards.on_begin = self._read_memory_before_backward
            self.backwards.on_end = self._read_memory_after_backward
            self.steps.on_stepped = self.live_memory.read_state
        self.compilers = CompilerObserver(session, self.tensors, self.nodes)
        self.functions.on_compiled = self.compilers.runs.on_node
        self.state = StateTable(session, self.runs)
        self.arguments = ArgumentTable(session, self.saves)
        self.regions = RegionTable(self.modules)
        self.checkpoint_pairs = CheckpointPairs(session, self.regions, self.state, self.arguments)
        self.reentrant = ReentrantRegions(session, self.regions, self.state)
        if session.stops is not None:
            session.stops.steps = self.steps
        if session.verifier is not None:
            session.verifier.connect(self.nodes.id_of, self.modules.name_of)

    def install(self) -> ExitStack:
        """Install every hook, or none if one fails; return the context that removes them."""
        skip_recorder_frames()
        if self.live_memory is not None:
            self._session.guarded("memory", self.live_memory.read_all)
            self._session.guarded("owners", self.memory_holders.begin)
        with ExitStack() as pending:
            for context in self._contexts():
                pending.enter_context(context)
            return pending.pop_all()

    def _contexts(self) -> Iterator[AbstractContextManager[Any]]:
        session, tensors, state = self._session, self.tensors, self.state
        handlers: dict[type, PairHandler] = {
            CheckpointHook: self.checkpoint_pairs,
            RecomputationHook: self.checkpoint_pairs,
        }
        yield self.compilers
        yield observe_hook_pairs(session, self.tracer, self.pairs, handlers)
        yield observe_checkpoint_frames()
        yield observe_custom_functions(session, self.functions)
        if session.verifier is not None:
            yield observe_functions(session, session.verifier)
        yield observe_reentrant(session, self.reentrant)
        yield observe_hooks(session, tensors, self.modules, self.hooks)
        yield observe_policies(session)
        yield observe_disabled_hooks(session)
        yield observe_backward(session, self.backwards, self.gradients, self.steps)
        yield observe_modules(session, self.module_calls)
        yield observe_increments(session, tensors, self.versions)
        yield observe_restored_versions(session, tensors, self.versions)
        yield observe_resizes(session, tensors)
        yield observe_attributes(session, state)
        yield observe_modes(session)
        yield observe_transforms(session)
        yield observe_sharded_parameters(
            session, self.modules, tensors, self.leaves, self.gradients.sharded
        )
        yield observe_placements(session, tensors)
        yield observe_requires_grad(session, self.leaves)
        yield observe_optimizers(session, self.steps)
        yield observe_allocation_failures(session, self.failures)
        yield observe_stream_order(session)
        yield released_before_swap(self._release)
        yield from self._engine.contexts(session)

    def _release(self, tensor: torch.Tensor) -> None:
        """Drop all weak references to a tensor."""
        for table in (self.leaves, self.recent, self.saves):
            if weakref.getweakrefs(tensor):
                self._session.always_guarded("swaps", table.release, tensor)
        mode = self._session.fake_mode
        if mode is not None:
            self._session.always_guarded("swaps", forget_fake_tensor, mode, tensor)

    def _read_memory_before_backward(self) -> None:
        if self.live_memory is not None:
            self.live_memory.read_allocators()
            self.memory_holders.before_backward()

    def _read_memory_after_backward(self) -> None:
        if self.live_memory is not None:
            self.live_memory.read_gradients()
            self.live_memory.read_allocators()
            self.memory_holders.after_backward()

    def can_remove(self) -> bool:
        """Return whether the hooks can be removed now: no dispatch mode was entered later."""
        return self._engine.can_remove()

    def name_modules(self, model: torch.nn.Module) -> None:
        """Take the names of modules and parameters from a model."""
        self._session.guarded("modules", self.modules.add_root, model, "")

    def finish(self, error: BaseException | None) -> None:
        """Record graphs that no backward entered, gradient norms, and the exception."""
        guarded = self._session.guarded
        self._session.always_guarded("threads", self._session.report_failed_threads)
        device = "" if error is None else guarded("memory", self.failures.left, error)
        if device and device != "cpu":  # which has no memory for the results
            self.gradients.reads_devices = False
        if self.live_memory is not None:
            guarded("memory", self.live_memory.finish)
            guarded("owners", self.memory_holders.read)
        if self.device_times is not None:
            guarded("device_time", self.device_times.finish)
        guarded("nodes", self._walk_recent)
        guarded("leaves", self.gradients.read_sums)
        guarded("leaves", self.gradients.read_norms)
        guarded("leaves", self.gradients.read_parameters_of_zeros)
        guarded("leaves", self.gradients.read_frozen_zeros)
        guarded("leaves", self.gradients.report_unread)
        guarded("steps", self.steps.find_optimizers)
        if self.steps.count:  # without a step, no tensor outlives one
            guarded("tensors", self._alive_at_step_ends.emit)
        guarded("owners", self._held_graphs.record)
        if self._session.addresses is not None:
            guarded("addresses", self._session.addresses.finish)
        if self._session.verifier is not None:
            guarded("verify", self._session.verifier.finish)
        if error is not None:
            guarded("error", self._emit_error, error)

    def _walk_before_backward(self) -> None:
        """Record the graph of the newest results; a backward has recorded its own."""
        if not self.runs.open:
            self._walk_recent()

    def _walk_recent(self) -> None:
        with DisableTorchFunction():
            is_new = self.nodes.is_new
            self.nodes.record([node for node in self.recent.nodes() if is_new(node)])

    def _emit_error(self, error: BaseException) -> None:
        """Record an exception, and the error of PyTorch behind it if it is another one."""
        explained = explained_error(error)
        for each in (error,) if explained is error else (error, explained):
            node_id, backward_id = self.backwards.failed_node(each) or (None, None)
            self._session.emit(
                ErrorRaised,
                *describe(each),
                node_id,
                backward_id,
                stack_id=self._session.stacks.of_traceback(each.__traceback__),
            )

    def walk(self, roots: list[Any]) -> None:
        """Record the graphs of some nodes."""
        with DisableTorchFunction():
            self.nodes.record(roots)

    def untag(self, roots: Iterable[Any]) -> None:
        """Remove the tags that ``walk`` attached to nodes."""
        self.nodes.untag(roots)

    @property
    def saved_count(self) -> int:
        """The number of saved tensors so far, which is the id of the next one."""
        return self.saves.count

    def held_saves(self) -> dict[int, int]:
        """Return the saves without hooks that nodes hold, each with its tensor."""
        return self._engine.held_saves()

    def describe_again(self, seq: int) -> None:
        """Describe nodes again that were last described before an event, when they are used."""
        self.nodes.oldest = seq

    def prune_history(self, first_seq: int, first_saved_id: int) -> None:
        """Forget the ops, writes and regions before an event, and older saves through hooks."""
        self._engine.prune_history(first_seq)
        self.saves.prune(first_saved_id)
        self.state.prune(first_seq)
        self.modules.prune()

    def prune(
        self,
        tensors: AbstractSet[int],
        arguments: AbstractSet[int],
        first_seq: int,
        first_saved_id: int,
    ) -> dict[Target, AbstractSet[int]]:
        """Forget everything dead.

        Args:
            tensors: ids of tensors that events refer to.
            arguments: ids of arguments of operators that events refer to.
            first_seq: the oldest event of the passing kinds that is kept.
            first_saved_id: the oldest save that is kept.

        Returns:
            The ids that may be used again.
        """
        self.leaves.prune()
        self.gradients.prune()
        self.steps.prune(self.leaves.live_ids)
        referenced = tensors | self.leaves.live_ids | self.gradients.loss_ids
        referenced |= self._alive_at_step_ends.outlived()
        self._engine.prune(referenced, first_seq)
        self.saves.prune(first_saved_id)
        self.state.prune(first_seq)
        self.modules.prune()
        self.hooks.prune()
        return {
            "tensor": self._engine.live_tensor_ids() | referenced,
            "arguments": self._engine.prune_arguments(arguments),
            "module": self.modules.live_ids,
            "hook": self.hooks.live_ids,
            "stack": self._session.stacks.live_ids,
        }
