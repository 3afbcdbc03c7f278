"""The nodes of the autograd graph, their runs and the calls of modules, as C++ records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import RecorderLimited
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from autogradviz.recorder.backward.custom_function_saves import CustomFunctionTable
    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.backward.open_engine_call import EngineCall
    from autogradviz.recorder.device_times import DeviceTimes
    from autogradviz.recorder.engine_interface import RecentTensors
    from autogradviz.recorder.module_calls import ModuleTable
    from autogradviz.recorder.native.extension_types import Recording
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.tensors.leaves_and_requires_grad import LeafTable


class NativeModuleCalls:
    """Records the calls of modules."""

    def __init__(
        self, session: Session, recording: Recording, modules: ModuleTable, recent: RecentTensors
    ) -> None:
        self._session = session
        self._local = session.threads.local
        self._modules = modules
        self._recent = recent
        self.times: DeviceTimes | None = None
        self._enter = recording.enter_module
        self._exit = recording.exit_module

    @skip_dynamo_recursive
    def on_enter(self, module: torch.nn.Module) -> int | None:
        """Record that a module's forward starts; return the number of open calls before it."""
        try:
            state = self._local.state  # lets C++ know this thread
            module_id = self._modules.find(module)
            if module_id is None and self._session.observes():
                module_id = self._modules.intern(module, state)
            opened = None if module_id is None else self._enter(module_id)
            if opened is not None and self.times is not None:
                self.times.on_enter(module)
            return opened  # noqa: TRY300
        except Exception as error:  # noqa: BLE001 - whatever failed here, the module must run
            self._session.fail("modules", error)
            return None

    @skip_dynamo_recursive
    def on_exit(self, opened: int, output: Any) -> None:
        """Record that a module's forward ended (``output`` is None if it raised)."""
        try:
            if self.times is not None:
                self.times.on_exit(opened)
            if self._exit(opened, output is None):
                self._recent.remember(output)
        except Exception as error:  # noqa: BLE001
            self._session.fail("modules", error)


class NativeNodes:
    """Walks graphs."""

    def __init__(
        self,
        session: Session,
        recording: Recording,
        leaves: LeafTable,
        saves: SaveTable,
        functions: CustomFunctionTable,
    ) -> None:
        self._session = session
        self._recording = recording
        self._add_leaf = leaves.add
        leaves.forget_listeners.append(recording.forget_leaf)
        self._saves = saves
        self._functions = functions
        self.oldest = 0
        """Nodes whose description is older than this event are described again."""
        self.id_of: Callable[[Any], int] = recording.node_id
        """Return a node's id."""
        self.is_new: Callable[[Any], bool] = recording.is_new
        """Return whether no walk has reached a node yet."""

    def untag(self, roots: Iterable[Any]) -> None:
        """Forget the nodes that ``roots`` reach."""
        self._recording.forget(list(roots))

    def record(self, roots: Iterable[Any]) -> None:
        """Record every node that gradients of ``roots`` reach, once."""
        self.walk(roots)

    def walk(self, roots: Iterable[Any]) -> list[tuple[int, torch.Tensor]]:
        """Record every node that gradients of ``roots`` reach, once.

        Returns:
            The leaves that were not known, or have hooks: tensor id and tensor.
        """
        leaves, functions, unlocated = self._recording.walk(
            list(roots), self.oldest, self._read_hooked
        )
        for slot in unlocated:
            message = f"the saved tensors of {slot} were not found in its memory: not recorded"
            self._session.emit(RecorderLimited, "slots", message)
        for tensor_id, leaf in leaves:
            self._add_leaf(tensor_id, leaf)
        for node_id, node in functions:
            self._functions.read_context(node, node_id)
        return leaves

    def _read_hooked(self, content: Any, node_id: int, sequence_nr: int | None, slot: str) -> int:
        """Record that a slot holds what a hook packed; return the id of the save."""
        return self._saves.read_hooked(content, node_id, sequence_nr, slot)[0]


class NativeRuns:
    """Records the runs of nodes."""

    def __init__(self, recording: Recording, nodes: NativeNodes, gradients: GradientTable) -> None:
        self._recording = recording
        self._nodes = nodes
        self._reached = gradients.reached
        self.open: dict[int, EngineCall] = {}
        """The open calls of PyTorch's engine, by backward id."""
        self.on_first_hook: Callable[[], None] = recording.hook_runs
        """Record that the last node has finished, if the first hook of another one runs."""
        self.current: Callable[[], tuple[int | None, int | None]] = recording.current_node
        """Return the backward and the node that run on this thread, by their ids."""

    def begin(self, call: EngineCall, roots: Iterable[Any]) -> Iterator[tuple[torch.Tensor, int]]:
        """Walk a graph and observe its nodes; yield the leaves that may have hooks, with ids."""
        leaves = self._nodes.walk(roots)
        self._recording.begin_backward(call.backward_id, call.keep_graph)
        for tensor_id, leaf in leaves:
            yield leaf, tensor_id

    def unhook(self, call: EngineCall) -> None:
        """Do nothing: the nodes have no hooks."""

    def end(self, call: EngineCall, *, failed: bool) -> None:
        """Finish the last nodes of a call that has returned or raised."""
        self.open.pop(call.backward_id, None)
        self._reached.update(self._recording.end_backward(call.backward_id, failed))
