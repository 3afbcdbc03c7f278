"""Backwards: every call into the autograd engine, nested ones too.

When the engine is entered the graph is walked, read, and each node gets a hook, as in PyTorch's own
``_register_logging_hooks_on_whole_graph``; when the engine returns all hooks are removed.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph

from autogradviz.events import (
    BackwardEnded,
    BackwardRaised,
    BackwardStarted,
    RecorderLimited,
)
from autogradviz.recorder.backward.singular_operands import SingularOperands
from autogradviz.recorder.raised_errors import describe, explained_error, frames_of
from autogradviz.recorder.torch_internals.keep_dynamo_out import (
    is_compiled_autograd_enabled,
    skip_frame,
)
from autogradviz.recorder.torch_internals.patches import patched_in_all_modules
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction, current
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.backward.training_steps import StepTable
    from autogradviz.recorder.backward.user_hooks import HookTable
    from autogradviz.recorder.engine_interface import Engine, Nodes, Runs, TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.user_code_frames import Place


_COMPILED = "compiled autograd also compiles hooks: only the graph of such a backward is recorded"


class BackwardTable:
    """Records engine calls, and hooks the nodes that each may run."""

    def __init__(
        self,
        session: Session,
        tensors: TensorIds,
        leaves: LeafTable,
        gradients: GradientTable,
        nodes: Nodes,
        runs: Runs,
        hooks: HookTable,
        steps: StepTable,
    ) -> None:
        self._session = session
        self._tensors = tensors
        self._leaves = leaves
        self._gradients = gradients
        self._nodes = nodes
        self._runs = runs
        self._hooks = hooks
        self._steps = steps
        self.singular = SingularOperands(session, gradients, nodes)
        self._ids = count()  # a number for each call, whichever threads call at once
        self._reported_compiled = False
        self.watch: Any = None
        """The ``GradientWatch``, if fingerprints begin when a gradient is not finite."""
        self.on_error: Callable[[BaseException], None] = _ignore
        """Called with each exception that leaves the engine."""
        self.on_begin: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None
        """Called when an outermost backward has returned."""
        self.failed_in: dict[int, tuple[int, int] | None] = {}
        """(node, backward) that was running when the engine raised, by ``id`` of the frame that
        called it: a traceback holds the frame, or else it is overwritten when the engine raises
        again."""

    def begin(self, outputs: Sequence[Any], arguments: tuple[Any, ...], named: Any) -> EngineCall:
        """Walk and hook the graph; the engine is about to run."""
        session = self._session
        state = session.threads.local.state
        options = engine_options(arguments, named)
        engine = session.engine
        call = EngineCall(
            next(self._ids), state, engine,
            keep_graph=options["retain_graph"], limited=bool(options["inputs"]),
        )  # fmt: skip
        self._gradients.engine_called()
        open_calls = self._runs.open
        try:
            with DisableTorchFunction():
                roots = [node for node in map(node_of, outputs) if node is not None]
                inputs = [node for node in map(node_of, options["inputs"]) if node is not None]
                intern = self._tensors.intern
                root_ids = tuple([intern(t) for t in outputs if isinstance(t, torch.Tensor)])
                input_ids = tuple(
                    [intern(t) for t in options["inputs"] if isinstance(t, torch.Tensor)]
                )
            if not open_calls:
                self._steps.backward_began()
                if self.on_begin is not None:
                    session.guarded("owners", self.on_begin)
            open_calls[call.backward_id] = call
            nodes = self._nodes
            # The objects created here stay: a collection would only cost time.
            with DisableTorchFunction(), collector_waiting():
                if len(open_calls) == 1:
                    self._leaves.find_assignments()
                for leaf, leaf_id in self._runs.begin(call, roots):
                    self._hooks.watch_leaf(leaf, leaf_id)
            run = engine.innermost_run()
            session.emit(
                BackwardStarted,
                call.backward_id,
                None if run is None else run[0],
                tuple([nodes.id_of(node) for node in roots]),
                root_ids,
                tuple([nodes.id_of(node) for node in inputs]),
                options["retain_graph"],
                options["create_graph"],
                options["accumulate_grad"],
                input_ids,
                stack_id=session.stack_id(),
            )
            self._hooks.begin()
            session.stacks.mark(2, state)
        except BaseException:
            open_calls.pop(call.backward_id, None)
            self._runs.unhook(call)
            raise
        return call

    def end(self, call: EngineCall, *, failed: bool) -> None:
        """Unhook the graph; the engine has returned or raised."""
        session, runs = self._session, self._runs
        runs.unhook(call)
        self._hooks.end()
        if failed:
            call.failed_node = call.interrupted_node()
        runs.end(call, failed=failed)
        call.restore_thread()
        session.emit(BackwardEnded, call.backward_id, failed)
        if not runs.open and not failed:
            gradients = self._gradients
            if self.watch is not None:
                session.guarded("leaves", self.watch.backward_ended, call.backward_id)
            read = gradients.read_norms if session.with_fingerprints else gradients.hold_norms
            session.guarded("leaves", read)
            if self.on_end is not None:
                session.guarded("memory", self.on_end)
        if not runs.open:
            self._steps.backward_ended()

    def emit_error(self, call: EngineCall, error: BaseException) -> None:
        """Record the exception of an outermost backward: the program may catch it."""
        if self._runs.open:
            return
        explained = explained_error(error)
        node_id, backward_id = self.failed_node(explained) or (None, None)
        self._session.emit(
            BackwardRaised,
            call.backward_id,
            *describe(explained),
            node_id,
            backward_id,
            stack_id=self._session.stack_id(),
        )

    def failed_node(self, error: BaseException) -> tuple[int, int] | None:
        """Return the node that raised an exception, and its backward; None if no node did."""
        found = (self.failed_in.get(id(frame)) for frame in frames_of(error))
        return next((each for each in reversed([*found]) if each is not None), None)

    def walk_only(self, outputs: Sequence[Any]) -> None:
        """Walk the graph of a backward that is compiled, and hook nothing."""
        self._steps.backward_began()
        with DisableTorchFunction(), collector_waiting():
            self._nodes.record([node for node in map(node_of, outputs) if node is not None])
        if not self._reported_compiled:
            self._reported_compiled = True
            self._session.emit(RecorderLimited, "backward", _COMPILED)


def _ignore(_error: BaseException) -> None:
    """Do nothing."""


@contextmanager
def observe_backward(
    session: Session, table: BackwardTable, gradients: GradientTable, steps: StepTable
) -> Iterator[None]:
    """Record every backward while the context is open."""
    original = current("autograd.graph._engine_run_backward")

    @skip_frame
    def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiled_autograd_enabled():
            session.guarded("backward", table.walk_only, t_outputs)
            try:
                return original(t_outputs, *args, **kwargs)
            finally:
                session.guarded("backward", steps.backward_ended)
        call = session.guarded("backward", table.begin, t_outputs, args, kwargs)
        if call is not None:
            session.guarded("leaves", gradients.copy_losses, call.backward_id, t_outputs)
            session.guarded("leaves", table.singular.read, call.backward_id, t_outputs)
        try:
            result = original(t_outputs, *args, **kwargs)
        except BaseException as error:
            session.guarded("memory", table.on_error, error)
            if call is not None:
                session.guarded("backward", table.end, call, failed=True)
            with suppress(Exception):  # an audit hook of the program may refuse to read frames
                node = None if call is None else call.failed_node
                table.failed_in[id(sys._getframe())] = node  # noqa: SLF001 - the documented way
            if call is not None:
                session.guarded("backward", table.emit_error, call, error)
            raise
        if call is not None:
            session.guarded("backward", table.end, call, failed=False)
        return result

    # torch.autograd holds the same function under the same name, and so may other modules.
    with patched_in_all_modules("_engine_run_backward", original, run_backward):
        yield


# --- open engine call -----------------------------------------------------------------------------
#
# One call into the autograd engine of PyTorch: its options, and what is open on its thread.


class EngineCall:
    """One call into the autograd engine of PyTorch."""

    def __init__(
        self,
        backward_id: int,
        state: ThreadState,
        engine: Engine,
        *,
        keep_graph: bool,
        limited: bool,
    ) -> None:
        self.backward_id = backward_id
        self.keep_graph = keep_graph
        self.limited = limited  # only the gradients of some inputs are computed
        self.state = state
        self.failed_node: tuple[int, int] | None = None
        """(node, backward) that was running when the engine raised."""
        self._engine = engine
        self.runs_before = engine.run_count()
        self._depths = (len(state.calls), len(state.regions), len(state.marks))
        self.outer: EngineCall | None = None
        """The call whose node made this one."""
        self.callers: tuple[int, list[Place]] | None = None
        """The stack of the call and its id, for threads that work for the call."""

    def interrupted_node(self) -> tuple[int, int] | None:
        """Return the node and backward that were running when the engine raised, None if none."""
        node_id = self._engine.failed_run(self.backward_id)
        return None if node_id is None else (node_id, self.backward_id)

    def restore_thread(self) -> None:
        """Close the modules, regions and nodes that an exception left open on the thread."""
        calls, regions, marks = self._depths
        del self.state.calls[calls:]
        del self.state.regions[regions:]
        del self.state.marks[marks:]
        self._engine.drop_runs(self.runs_before)


def node_of(output: Any) -> Any:
    """Return the node of a root or an input of a backward, None for a leaf."""
    if isinstance(output, torch.autograd.graph.GradientEdge):
        return output.node
    return output.grad_fn if isinstance(output, torch.Tensor) else None


def engine_options(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's arguments by name: retain_graph, create_graph, inputs, ..."""
    given = dict(zip(("gradients", "retain_graph", "create_graph", "inputs"), arguments))  # noqa: B905
    given.update(named)
    return {
        "retain_graph": bool(given.get("retain_graph")),
        "create_graph": bool(given.get("create_graph")),
        "accumulate_grad": bool(given.get("accumulate_grad", True)),
        "inputs": given.get("inputs") or (),
    }
