"""The nodes that the engine runs: start, end, and the engine call that each belongs to.

NOTE [ When a node has finished ]
A hook after a node makes the engine keep the node's incoming gradients while it runs: more memory,
other buffers reused, and the user's own post-hooks would receive gradients that are None otherwise.
So a node has finished when its thread starts the next one, when a user's hook runs for another one,
or when the backward has ended without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from autogradviz.events import NO_ID, GradAccumulated, NodeFinished, NodeStarted
from autogradviz.recorder.ops.device_copies_and_streams import emit_stream
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.nodes_sensitive_to_mode import is_sparse
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    current_autograd_node,
    current_graph_task_id,
    len_torch_function_stack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.recorder.backward.backward_calls import EngineCall
    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.python_engine.device_spans import PythonDeviceSpans
    from autogradviz.recorder.python_engine.dispatch_mode import OpMode
    from autogradviz.recorder.python_engine.graph_walk import NodeTable
    from autogradviz.recorder.python_engine.node_metadata_entry import NodeTag, OnStart
    from autogradviz.recorder.python_engine.program_clock import ProgramClock
    from autogradviz.recorder.python_engine.saved_tensors import SlotTable
    from autogradviz.recorder.python_engine.stack_table import StackTable
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.session import Session, SessionRef
    from autogradviz.recorder.thread_state import Running, ThreadState

_Tensor = torch.Tensor


class _Hooked(NamedTuple):
    """The hooks of an engine call."""

    tags: list[NodeTag]
    dicts: list[dict[Any, Any]]
    """The dict that holds each tag as a hook."""
    threads: dict[int, ThreadState]
    """The threads on which nodes ran."""


class NodeRuns:
    """Records each run of a node."""

    def __init__(
        self,
        session: Session,
        tensors: TensorTable,
        slots: SlotTable,
        gradients: GradientTable,
        mode: OpMode | None,
        clock: ProgramClock,
        stacks: StackTable,
    ) -> None:
        self._session = session
        self._stacks = stacks
        self._clock = clock
        self._stops = session.stops
        self._local = session.threads.local
        self._slots = slots
        self._mode = mode
        self._verifier = session.verifier
        self._reached = gradients.reached
        # Without operators no writes to gradients are recorded, so their identity has no use.
        tracked = session.with_ops or session.with_fingerprints
        self._intern = tensors.intern if tracked else tensors.intern_by_shape
        self._emit_started = session.emitter(NodeStarted)
        self._emit_finished = session.emitter(NodeFinished)
        self._emit_accumulated = session.emitter(GradAccumulated)
        self._with_streams = torch.accelerator.is_available()
        self.device_spans: PythonDeviceSpans | None = None
        """Times nodes on the device, if that is recorded."""
        self.open: dict[int, EngineCall] = {}
        """The open engine calls by backward id."""
        self._by_task: dict[int, EngineCall] = {}
        self._hooked: dict[int, _Hooked] = {}
        self.nodes: NodeTable
        """Walks the graphs; set once it exists, as it needs ``on_start``."""
        self.on_start: SessionRef[OnStart] = session.ref(self.on_node_start)
        """The key of the recording's tags in the metadata of nodes; tags call its target."""

    def call_of(self, state: ThreadState, hooked_by: int | None = None) -> EngineCall | None:
        """Return the engine call whose graph task is running on this thread.

        Args:
            state: of this thread.
            hooked_by: the backward that has hooked the node that runs, if that is known.
        """
        task = current_graph_task_id()
        call = self._by_task.get(task)
        if call is None and task != NO_ID:
            # The first node of a task: a call without one, preferably this thread's.
            known = {id(other) for other in self._by_task.copy().values()}
            fresh = [other for other in self.open.copy().values() if id(other) not in known]
            if not fresh:
                return None
            own = [other for other in fresh if other.state is state]
            hooked = [other for other in fresh if other.backward_id == hooked_by]
            call = self._by_task[task] = (own or hooked or fresh)[-1]
        return call

    def works_for(self, state: ThreadState) -> EngineCall | None:
        """Return the call of another thread for which this thread works, None if there is none."""
        call = self.call_of(state)
        while call is not None and call.state is state:
            call = call.outer
        return call

    def failed_run(self, backward_id: int) -> int | None:
        """Return the node of an open backward that raised, on whichever thread, None if none."""
        found = self._hooked.get(backward_id)
        if found is None:
            return None
        last = [
            (run[1] == state.suspect, run[4], run[1])
            for state in found.threads.copy().values()
            for run in state.running
            if run[0] == backward_id
        ]
        return max(last)[2] if last else None

    def begin(self, call: EngineCall, roots: Iterable[Any]) -> Iterator[tuple[torch.Tensor, int]]:
        """Walk a graph and hook its nodes; yield the leaves that no call has reached before."""
        backward_id, found = call.backward_id, _Hooked([], [], {call.state.number: call.state})
        self._hooked[backward_id] = found
        call.outer = self.call_of(call.state) if call.state.running else None
        if self._session.with_stacks:
            call.callers = self._stacks.callers(call.state)
        call.state.engine_calls.append(call)
        hooked, hooks = found.tags, found.dicts
        nodes: list[tuple[Any, NodeTag]] = []
        for node, tag in self.nodes.walk(roots):
            before = tag.hooked_by
            if before in self.open:
                continue  # an outer backward has hooked it
            tag.hooked_by = backward_id
            hooks.append(node.register_prehook(tag))
            hooked.append(tag)
            nodes.append((node, tag))
            if before is None and tag.leaf is not None:
                yield node.variable, tag.leaf
        if self._verifier is not None:
            self._verifier.backward_begins(backward_id, nodes, call)

    def unhook(self, call: EngineCall) -> None:
        """Remove the hooks of all nodes of an engine call."""
        found = self._hooked.get(call.backward_id)
        if found is not None:
            for tag, hooks in zip(found.tags, found.dicts, strict=False):
                hooks.pop(tag, None)
            found.tags.clear()
            found.dicts.clear()
        if self._verifier is not None:
            self._verifier.backward_ends(call.backward_id)

    def end(self, call: EngineCall, *, failed: bool) -> None:
        """Remove an engine call that has returned or raised; finish its last nodes."""
        self.open.pop(call.backward_id, None)
        for task in [task for task, other in self._by_task.copy().items() if other is call]:
            del self._by_task[task]
        if call in call.state.engine_calls:
            call.state.engine_calls.remove(call)
        found = self._hooked.pop(call.backward_id, None)
        if found is None:
            return
        if not failed:
            self._clock.agree_with_other_threads(call.state.number)
        for state in found.threads.copy().values():
            ended = [run for run in state.running if run[0] == call.backward_id]
            state.running[:] = [run for run in state.running if run[0] != call.backward_id]
            for run in ended if not failed else ():
                self._finish(run, state.number, call)

    @skip_dynamo_recursive
    def on_node_start(self, tag: NodeTag, gradients: Any) -> None:
        """Record that a node is about to run."""
        self._session.begin_recorder_time()
        try:
            state = self._local.state
            call = self._by_task.get(current_graph_task_id())
            call = call or self.call_of(state, tag.hooked_by)
            if call is None:
                return
            thread, running, backward_id = state.number, state.running, call.backward_id
            if state is not call.state:
                self._clock.agree_with_other_threads(thread)
                hooked = self._hooked.get(backward_id)
                if hooked is not None:
                    hooked.threads[thread] = state
            if running:
                self.finish(state)
            incoming: tuple[int, ...]
            # Most nodes receive one plain tensor.
            if (
                len(gradients) == 1
                and type(gradients[0]) is _Tensor
                and not len_torch_function_stack()
            ):
                incoming, given = (self._intern(gradients[0]),), True
            else:
                incoming, given = self._intern_all(gradients)
            node_id = tag.node_id
            seq = self._emit_started(thread, None, backward_id, node_id, incoming)
            running.append((backward_id, node_id, tag, given, seq))
            self._read_node(tag, backward_id, state, gradients)
            mode = self._mode
            if mode is not None and (
                tag.mode_sensitive or (tag.leaf is not None and is_sparse(gradients))
            ):
                mode.suspend()  # the engine restores it when it has run the node
            if self._with_streams:
                self._on_device(backward_id, node_id, gradients)
        except Exception as error:  # noqa: BLE001 - whatever failed here, the node must run
            self._session.fail("backward", error)
            return
        finally:
            self._session.end_recorder_time()
        if self._stops is not None:
            self._stops.node_started(gradients)

    def _on_device(self, backward_id: int, node_id: int, gradients: Any) -> None:
        """Record the stream on which a node runs, and when."""
        with DisableTorchFunction():
            emit_stream(self._session, gradients, run=(backward_id, node_id))
        if self.device_spans is not None:
            self.device_spans.run_begins(backward_id, node_id, gradients)

    def _read_node(
        self, tag: NodeTag, backward_id: int, state: ThreadState, gradients: Any
    ) -> None:
        """Read the saved tensors of a node that is about to run, and verify what arrived at it."""
        if self._verifier is not None:
            node = current_autograd_node()
            self._verifier.guarded(self._verifier.node_started, tag, node, backward_id, gradients)
        if tag.saved is not None:
            with DisableTorchFunction():
                self._slots.read_versions(current_autograd_node(), tag.node_id, tag.saved, state)

    def _intern_all(self, gradients: Sequence[Any]) -> tuple[tuple[int, ...], bool]:
        """Return the ids of gradients, and whether any is not None."""
        with DisableTorchFunction():
            ids = [NO_ID if each is None else self._intern(each) for each in gradients]
        return tuple(ids), any(each is not None for each in gradients)

    def finish(self, state: ThreadState) -> None:
        """Record that the nodes have finished that ran on a thread before the one that starts."""
        running, calls = state.running, state.engine_calls
        below = calls[-1].runs_before if calls else 0
        while len(running) > below:
            run = running.pop()
            call = self.open.get(run[0])
            if call is not None:
                self._finish(run, state.number, call)

    def _finish(self, run: Running, thread: int, call: EngineCall) -> None:
        backward_id, node_id, tag, given, _ = run
        if self.device_spans is not None:
            self.device_spans.run_ends(backward_id, node_id)
        self._emit_finished(thread, None, backward_id, node_id)
        leaf, saved = tag.leaf, tag.saved
        if leaf is not None and given:
            self._reached[leaf] = backward_id
            self._emit_accumulated(thread, None, backward_id, node_id, leaf)
        if saved is not None and not call.keep_graph:
            self._slots.release(saved)

    def on_first_hook(self) -> None:
        """Record that the last node has finished, if the first hook of another one runs.

        A user's hook may run before the recorder's.
        """
        node: Any = current_autograd_node()
        state = self._local.state
        tag = None if node is None else node.metadata.get(self.on_start)
        is_other = state.running and (tag is None or state.running[-1][1] != tag.node_id)
        if is_other and self.call_of(state) is not None:
            self.finish(state)

    def current(self) -> tuple[int | None, int | None]:
        """Return the backward and the node that run on this thread, by their ids."""
        state = self._local.state
        node = current_autograd_node()
        metadata: Any = None if node is None else node.metadata
        tag = None if metadata is None else metadata.get(self.on_start)
        call = self.call_of(state)
        return (
            None if call is None else call.backward_id,
            None if tag is None else tag.node_id,
        )
