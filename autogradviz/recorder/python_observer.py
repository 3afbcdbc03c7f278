"""The observer that consists of Python hooks: its tables, and the order of installation."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from autogradviz.events import ErrorRaised
from autogradviz.recorder.checkpoint.kept_tensor_arguments import ArgumentTable
from autogradviz.recorder.checkpoint.non_reentrant_regions import (
    CheckpointPairs,
    RegionTable,
    observe_checkpoint_frames,
)
from autogradviz.recorder.checkpoint.reentrant_regions import ReentrantRegions, observe_reentrant
from autogradviz.recorder.checkpoint.selective_checkpoint import observe_policies
from autogradviz.recorder.checkpoint.state_diff import StateTable, observe_attributes
from autogradviz.recorder.compile.observe_compilers import CompilerObserver
from autogradviz.recorder.engine.backward_calls import BackwardTable, observe_backward
from autogradviz.recorder.engine.custom_function_saves import (
    CustomFunctionTable,
    observe_custom_functions,
)
from autogradviz.recorder.engine.graph_walk import NodeTable
from autogradviz.recorder.engine.loss_and_gradient_norms import GradientTable
from autogradviz.recorder.engine.node_runs import NodeRuns
from autogradviz.recorder.engine.training_steps import StepTable, observe_optimizers
from autogradviz.recorder.engine.user_hooks import HookTable
from autogradviz.recorder.engine.wrap_register_hook import observe_hooks
from autogradviz.recorder.grad_and_autocast_modes import observe_modes
from autogradviz.recorder.ids.leaves_and_requires_grad import LeafTable, observe_requires_grad
from autogradviz.recorder.ids.tensor_ids import TensorTable
from autogradviz.recorder.ids.version_counters import (
    VersionTable,
    observe_increments,
    observe_restored_versions,
)
from autogradviz.recorder.module_calls import ModuleTable, observe_modules
from autogradviz.recorder.ops.collective_waits import observe_waits
from autogradviz.recorder.ops.dispatch_mode import OpMode
from autogradviz.recorder.ops.fingerprints import Fingerprints
from autogradviz.recorder.ops.node_creators import CreatorTable
from autogradviz.recorder.ops.recent_outputs import RecentOutputs
from autogradviz.recorder.saved_tensors.hook_wrappers import HookTracer
from autogradviz.recorder.saved_tensors.node_saved_tensors import SlotTable
from autogradviz.recorder.saved_tensors.record_hooks_disabled import observe_disabled_hooks
from autogradviz.recorder.saved_tensors.save_registry import SaveTable
from autogradviz.recorder.saved_tensors.wrap_entered_hooks import HookPairTable, observe_hook_pairs
from autogradviz.recorder.sharded_parameters import observe_sharded_parameters
from autogradviz.recorder.torch_internals.allow_swap_tensors import released_before_swap
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_recorder_frames
from autogradviz.recorder.torch_internals.private_api import (
    CheckpointHook,
    DisableTorchFunction,
    RecomputationHook,
    get_current_dispatch_mode,
)
from autogradviz.recorder.torch_internals.subclass_construction import suspended_in_subclass_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    import torch

    from autogradviz.events.field_types import Target
    from autogradviz.recorder.saved_tensors.wrap_entered_hooks import PairHandler
    from autogradviz.recorder.session import Session

OpTables: TypeAlias = tuple[RecentOutputs, TensorTable, VersionTable, CreatorTable]
"""The tables that recording operators fills."""


class PythonObserver:
    """Observes PyTorch through hooks written in Python."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.fingerprints = self._make_fingerprints(session)
        self.recent_outputs, self.tensors, self.versions, self.creators = self._make_op_tables(
            session
        )
        self.leaves = self._make_leaves(session)
        self.mode = self._make_mode(session)
        self.modules = self._make_modules(session)
        self.saves = self._make_saves(session)
        self.slots = SlotTable(
            session, self.tensors, self.versions, self.creators, self.saves, self.fingerprints
        )
        self.tracer = self._make_tracer(session)
        self.pairs = HookPairTable(session)
        self.gradients = GradientTable(session, self.tensors, self.leaves)
        self.steps = StepTable(session, self.tensors, self.gradients)
        self.functions = CustomFunctionTable(session, self.tensors, self.creators)
        self.runs, self.nodes = self._make_graph_tables(session)
        self.hooks = HookTable(session, self.modules, self.runs)
        self.backwards = BackwardTable(
            session, self.tensors, self.leaves, self.gradients, self.nodes, self.runs, self.hooks,
            self.steps,
        )  # fmt: skip
        self.compilers = CompilerObserver(session, self.tensors, self.nodes, self.mode)
        self.functions.on_compiled = self.compilers.runs.on_node
        self.state = StateTable(session)
        self.arguments = ArgumentTable(session, self.saves)
        self.regions = RegionTable(self.modules)
        self.checkpoint_pairs = CheckpointPairs(session, self.regions, self.state, self.arguments)
        self.reentrant = ReentrantRegions(session, self.regions, self.state)

    def _make_fingerprints(self, session: Session) -> Fingerprints:
        return Fingerprints(session)

    def _make_op_tables(self, session: Session) -> OpTables:
        tensors = TensorTable(session)
        versions = VersionTable(session, tensors)
        return RecentOutputs(), tensors, versions, CreatorTable(tensors, versions)

    def _make_leaves(self, session: Session) -> LeafTable:
        return LeafTable(session, self.tensors)

    def _make_modules(self, session: Session) -> ModuleTable:
        return ModuleTable(session, self.tensors, self.leaves, self.recent_outputs)

    def _make_saves(self, session: Session) -> SaveTable:
        return SaveTable(session, self.tensors, self.creators, self.fingerprints)

    def _make_tracer(self, session: Session) -> HookTracer:
        return HookTracer(session, self.tensors, self.saves, self.fingerprints)

    def _make_graph_tables(self, session: Session) -> tuple[NodeRuns, NodeTable]:
        runs = NodeRuns(session, self.tensors, self.slots, self.gradients, self.mode)
        nodes = NodeTable(
            session, self.tensors, self.leaves, self.creators, self.slots, self.functions,
            runs.on_start,
        )  # fmt: skip
        return runs, nodes

    def _make_mode(self, session: Session) -> OpMode | None:
        if not session.with_ops:
            return None
        return OpMode(
            session, self.tensors, self.versions, self.fingerprints, self.creators,
            self.recent_outputs,
        )  # fmt: skip

    def install(self) -> ExitStack:
        """Install every hook, or none if one fails; return the context that removes them."""
        skip_recorder_frames()
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
        yield observe_reentrant(session, self.reentrant)
        yield observe_hooks(session, tensors, self.modules, self.hooks)
        yield observe_policies(session)
        yield observe_disabled_hooks(session)
        yield observe_backward(session, self.backwards, self.gradients, self.steps)
        yield observe_modules(self.modules)
        yield observe_increments(session, tensors, self.versions)
        yield observe_restored_versions(session, tensors, self.versions)
        yield observe_attributes(session, state)
        yield observe_modes(session)
        yield observe_sharded_parameters(
            session, self.modules, tensors, self.leaves, self.gradients.sharded
        )
        yield observe_requires_grad(session, self.leaves)
        yield observe_optimizers(session, self.steps)
        yield released_before_swap(self._release)
        yield suspended_in_subclass_new(self.mode)
        if self.mode is not None:
            yield observe_waits(session, self.mode.collective_count)
            yield self.mode

    def _release(self, tensor: torch.Tensor) -> None:
        """Drop all weak references to a tensor."""
        for table in (self.leaves, self.recent_outputs, self.saves):
            if weakref.getweakrefs(tensor):
                self._session.always_guarded("swaps", table.release, tensor)

    def can_remove(self) -> bool:
        """Return whether the hooks can be removed now: no dispatch mode was entered later."""
        return self.mode is None or get_current_dispatch_mode() is self.mode

    def name_modules(self, model: torch.nn.Module) -> None:
        """Take the names of modules and parameters from a model."""
        self._session.guarded("modules", self.modules.add_root, model, "")

    def finish(self, error: BaseException | None) -> None:
        """Record graphs that no backward entered, gradient norms, and the exception."""
        guarded = self._session.guarded
        guarded("nodes", self._walk_recent_outputs)
        guarded("leaves", self.gradients.read_sums)
        guarded("leaves", self.gradients.read_norms)
        guarded("leaves", self.gradients.report_unread)
        guarded("steps", self.steps.find_optimizers)
        if error is not None:
            guarded("error", self._emit_error, error)

    def _walk_recent_outputs(self) -> None:
        with DisableTorchFunction():
            is_new = self.nodes.is_new
            self.nodes.walk([node for node in self.recent_outputs.nodes() if is_new(node)])

    def _emit_error(self, error: BaseException) -> None:
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        node_id, backward_id = self.backwards.failed_node or (None, None)
        self._session.emit(
            ErrorRaised,
            f"{module}{kind.__qualname__}",
            str(error),
            node_id,
            backward_id,
            stack_id=self._session.stacks.of_traceback(error.__traceback__),
        )

    def walk(self, roots: list[Any]) -> None:
        """Record the graphs of some nodes."""
        with DisableTorchFunction():
            self.nodes.walk(roots)

    def untag(self, roots: Iterable[Any]) -> None:
        """Remove the tags that ``walk`` attached to nodes."""
        self.nodes.untag(roots)

    def close(self) -> None:
        """Release all weak references to storages."""
        self.tensors.close()

    @property
    def saved_count(self) -> int:
        """The number of saved tensors so far, which is the id of the next one."""
        return self.saves.count

    def describe_again(self, seq: int) -> None:
        """Describe nodes again that were last described before an event, when they are used."""
        self.nodes.oldest = seq

    def prune_history(self, first_seq: int, first_saved_id: int) -> None:
        """Forget the ops, writes and regions before an event, and older saves through hooks."""
        self.creators.prune(first_seq)
        self.saves.prune(first_saved_id)
        self.versions.prune_history(self.tensors.live_storage_ids, first_seq)
        self.state.prune(first_seq)
        self.modules.prune()

    def prune(
        self, tensors: AbstractSet[int], first_seq: int, first_saved_id: int
    ) -> dict[Target, AbstractSet[int]]:
        """Forget everything dead; return the ids that may be used again."""
        self.leaves.prune()
        self.gradients.prune()
        self.steps.prune(self.leaves.live_ids)
        referenced = tensors | self.leaves.live_ids | self.gradients.loss_ids
        self.tensors.prune(referenced)
        self.versions.prune(self.tensors.live_storage_ids, first_seq)
        self.creators.prune(first_seq)
        self.saves.prune(first_saved_id)
        self.state.prune(first_seq)
        for table in (self.modules, self.hooks, self._session.stacks, self.fingerprints):
            table.prune()
        return {
            "tensor": self.tensors.live_ids | referenced,
            "module": self.modules.live_ids,
            "hook": self.hooks.live_ids,
            "stack": self._session.stacks.live_ids,
        }
