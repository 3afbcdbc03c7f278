"""The engine seam: every backward, nested ones too, and every node that runs in it.

When the engine is entered the whole graph is walked, looked at and given a hook before each
node, as PyTorch's own ``_register_logging_hooks_on_whole_graph`` does; when it is left they are
all removed.

NOTE [ When a node has finished ]
A hook after a node makes the engine keep the node's incoming gradients while it runs: more
memory, other buffers reused, and post-hooks of the user's own would be handed gradients that
are None otherwise. So a node has finished when its thread starts the next one of the same
backward, when a user's hook runs for another one, or when the backward has ended well.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph

from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    GradAccumulated,
    NodeFinished,
    NodeStarted,
    RecorderLimited,
)
from autogradviz.gc_control import collector_waiting
from autogradviz.recorder.engine.engine_call import Entry, engine_options, node_of
from autogradviz.recorder.torch_internals.dynamo import compiles_backward, hidden, transparent
from autogradviz.recorder.torch_internals.private_api import holders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.recorder.engine.node_tag import NodeTag
    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.threads import Running, ThreadState

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001
_current_node = torch._C._current_autograd_node  # noqa: SLF001
_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001
_function_modes = torch._C._len_torch_function_stack  # noqa: SLF001
_Tensor = torch.Tensor
_NAME = "_engine_run_backward"
_COMPILED = "compiled autograd compiles hooks too: of its backwards the graph alone is recorded"


class BackwardTable:
    """Knows the open engine entries and hears from the nodes' hooks."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._local = recorder.threads.local
        self._count = 0
        self._open: dict[int, Entry] = {}
        self._by_task: dict[int, Entry] = {}
        # Without operators nobody writes gradients, so that nobody asks which is which.
        followed = recorder.with_ops or recorder.with_fingerprints
        self._number = recorder.tensors.number if followed else recorder.tensors.intern_by_shape
        self._tell_started = recorder.emitter(NodeStarted)
        self._tell_finished = recorder.emitter(NodeFinished)
        self._tell_accumulated = recorder.emitter(GradAccumulated)
        self._left_alone = False
        self.failed_node: tuple[int, int] | None = None
        """(node, backward) that was running when the engine last raised."""

    def begin(self, outputs: Sequence[Any], arguments: tuple[Any, ...], named: Any) -> Entry:
        """Look at the graph and hook it; the engine is about to run."""
        recorder = self._recorder
        state = recorder.threads.local.state
        options = engine_options(arguments, named)
        entry = Entry(self._count, state, keep_graph=options["retain_graph"])
        self._count += 1
        try:
            with _NoFunctions():
                roots = [node for node in map(node_of, outputs) if node is not None]
                inputs = [node for node in map(node_of, options["inputs"]) if node is not None]
                number = recorder.tensors.number
                tensors = tuple([number(t) for t in outputs if isinstance(t, torch.Tensor)])
                named_inputs = tuple(
                    [number(t) for t in options["inputs"] if isinstance(t, torch.Tensor)]
                )
            if not self._open:
                recorder.steps.backward_began()
            self._open[entry.backward_id] = entry
            nodes = recorder.nodes
            # What is made there stays; the collector's turns are the user's objects'.
            with _NoFunctions(), collector_waiting():
                if len(self._open) == 1:
                    recorder.leaves.look_again()
                self._hook(entry, nodes.walk(roots))
            recorder.emit(
                BackwardStarted,
                entry.backward_id,
                state.running[-1][0] if state.running else None,
                tuple([nodes.tag(node).node_id for node in roots]),
                tensors,
                tuple([nodes.tag(node).node_id for node in inputs]),
                options["retain_graph"],
                options["create_graph"],
                options["accumulate_grad"],
                named_inputs,
                stack_id=recorder.stacks.capture(3) if recorder.with_stacks else None,
            )
            recorder.hooks.begin()
            if recorder.with_marks:
                recorder.stacks.mark(2, state)
        except BaseException:
            self._open.pop(entry.backward_id, None)
            entry.remove_hooks()
            raise
        return entry

    def _hook(self, entry: Entry, nodes: Sequence[tuple[Any, NodeTag]]) -> None:
        backward_id, hooked, hooks = entry.backward_id, entry.hooked, entry.hooks
        for node, tag in nodes:
            before = tag.hooked_by
            if before in self._open:
                continue  # an outer backward's hooks hear this node already
            tag.hooked_by = backward_id
            hooks.append(node.register_prehook(tag))
            hooked.append(tag)
            if before is None and tag.leaf is not None:
                self._recorder.hooks.watch_leaf(node.variable, tag.leaf)

    def end(self, entry: Entry, *, failed: bool) -> None:
        """Unhook the graph; the engine has run."""
        entry.remove_hooks()
        self._recorder.hooks.end()
        self._open.pop(entry.backward_id, None)
        for task in [task for task, open_ in self._by_task.items() if open_ is entry]:
            del self._by_task[task]
        state = entry.state
        if not failed:
            for other in entry.threads.values():
                self.finish(other, entry)
        if failed and len(state.running) > entry.depths[2] and self.failed_node is None:
            backward_id, node_id, *_ = state.running[-1]
            self.failed_node = (node_id, backward_id)
        del state.calls[entry.depths[0] :]
        del state.regions[entry.depths[1] :]
        del state.running[entry.depths[2] :]
        del state.marks[entry.depths[3] :]
        self._recorder.emit(BackwardEnded, entry.backward_id, failed)
        if self._recorder.with_fingerprints and not self._open and not failed:
            self._recorder.guarded("leaves", self._recorder.leaves.read)
        if not self._open:
            self._recorder.steps.backward_ended()

    def walk_only(self, outputs: Sequence[Any]) -> None:
        """Look at the graph of a backward that is compiled, and hook nothing."""
        self._recorder.steps.backward_began()
        with _NoFunctions(), collector_waiting():
            self._recorder.nodes.walk([node for node in map(node_of, outputs) if node is not None])
        if not self._left_alone:
            self._left_alone = True
            self._recorder.emit(RecorderLimited, "backward", _COMPILED)

    def entry_of(self, state: ThreadState) -> Entry | None:
        """Return the entry whose graph task is running on this thread."""
        task = _graph_task()
        entry = self._by_task.get(task)
        if entry is None:
            # The first node of a task: the newest entry without one, this thread's before all.
            known = {id(other) for other in self._by_task.values()}
            fresh = [other for other in self._open.values() if id(other) not in known]
            if not fresh:
                return None
            own = [other for other in fresh if other.state is state]
            entry = self._by_task[task] = (own or fresh)[-1]
        return entry

    @hidden
    def on_node_start(self, tag: NodeTag, gradients: Any) -> None:
        """Hear from a node that is about to run."""
        recorder = self._recorder
        try:
            state = self._local.state
            entry = self._by_task.get(_graph_task()) or self.entry_of(state)
            if entry is None:
                return
            thread, running, backward_id = state.number, state.running, entry.backward_id
            if running and running[-1][0] == backward_id:
                self._finish(running.pop(), thread, entry)
            if state is not entry.state:
                entry.threads[thread] = state
            incoming: tuple[int, ...]
            if len(gradients) == 1 and type(gradients[0]) is _Tensor and not _function_modes():
                incoming, given = (self._number(gradients[0]),), True  # as mostly
            else:
                incoming, given = self._numbers(gradients)
            node_id, kept = tag.node_id, tag.saved
            running.append((backward_id, node_id, tag, given))
            self._tell_started(thread, None, backward_id, node_id, incoming)
            if kept is not None:
                with _NoFunctions():
                    recorder.slots.read_versions(_current_node(), node_id, kept, thread)
            if recorder.mode is not None and (
                tag.mode_sensitive or (tag.leaf is not None and _is_sparse(gradients))
            ):
                recorder.mode.suspend()  # the engine puts it back when it has run the node
        except Exception as error:  # noqa: BLE001 - whatever we got wrong, the node must run
            recorder.fail("backward", error)

    def _numbers(self, gradients: Sequence[Any]) -> tuple[tuple[int, ...], bool]:
        """Return the numbers of gradients, and whether there is one."""
        with _NoFunctions():
            found = [NO_ID if each is None else self._number(each) for each in gradients]
        return tuple(found), any(each is not None for each in gradients)

    def finish(self, state: ThreadState, entry: Entry) -> None:
        """Record that the node of ``entry`` that ran last on a thread has finished."""
        if state.running and state.running[-1][0] == entry.backward_id:
            self._finish(state.running.pop(), state.number, entry)

    def _finish(self, ran: Running, thread: int, entry: Entry) -> None:
        backward_id, node_id, tag, given = ran
        self._tell_finished(thread, None, backward_id, node_id)
        leaf, kept = tag.leaf, tag.saved
        if leaf is not None and given:
            self._recorder.leaves.reached[leaf] = backward_id
            self._tell_accumulated(thread, None, backward_id, node_id, leaf)
        if kept is not None and not entry.keep_graph:
            self._recorder.slots.release(kept)

    def entered(self, node: Any) -> None:
        """Record that the engine has come to a node, when its first hook runs before ours."""
        recorder = self._recorder
        state = recorder.threads.local.state
        tag = None if node is None else node.metadata.get(recorder.gate)
        if state.running and (tag is None or state.running[-1][1] != tag.node_id):
            entry = self.entry_of(state)
            if entry is not None:
                self.finish(state, entry)


def _is_sparse(gradients: Sequence[Any]) -> bool:
    """Return whether a leaf is about to get a sparse gradient.

    What a mode has seen of it, indices and values, has a Python object; then the leaf would be
    given a copy and not the gradient itself.
    """
    first = gradients[0] if len(gradients) == 1 else None
    return isinstance(first, torch.Tensor) and first.layout is not torch.strided


@contextmanager
def observe_backward(recorder: Recorder) -> Iterator[None]:
    """Record every backward while the context is open."""
    original = torch.autograd.graph._engine_run_backward  # noqa: SLF001
    table = recorder.backwards

    @transparent
    def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiles_backward():
            recorder.guarded("backward", table.walk_only, t_outputs)
            try:
                return original(t_outputs, *args, **kwargs)
            finally:
                recorder.guarded("backward", recorder.steps.backward_ended)
        entry = recorder.guarded("backward", table.begin, t_outputs, args, kwargs)
        if entry is not None:
            recorder.guarded("leaves", recorder.leaves.began, entry.backward_id, t_outputs)
        try:
            result = original(t_outputs, *args, **kwargs)
        except BaseException:
            if entry is not None:
                recorder.guarded("backward", table.end, entry, failed=True)
            raise
        if entry is not None:
            recorder.guarded("backward", table.end, entry, failed=False)
        return result

    # torch.autograd holds the same function under a second name, and so may others.
    modules = holders(_NAME, original)
    for module in modules:
        setattr(module, _NAME, run_backward)
    try:
        yield
    finally:
        for module in modules:
            if vars(module).get(_NAME) is run_backward:
                setattr(module, _NAME, original)
