"""The nodes of the autograd graph, their runs and their saved tensors, as C++ records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import RecorderLimited
from autogradviz.recorder.ids.leaves_and_requires_grad import LeafTable
from autogradviz.recorder.module_calls import ModuleTable
from autogradviz.recorder.saved_tensors.save_registry import SaveTable
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine.custom_function_saves import CustomFunctionTable
    from autogradviz.recorder.engine.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.engine.open_engine_call import EngineCall
    from autogradviz.recorder.saved_tensors.node_saved_tensors import SlotTable
    from autogradviz.recorder.saved_tensors.tensors_in_packed_objects import HookedSave
    from autogradviz.recorder.session import Session


class NativeLeaves(LeafTable):
    """The known leaves; a walk in C++ returns only those that are not known."""

    def _forget(self, tensor_id: int) -> None:
        super()._forget(tensor_id)
        self._session.native.recording.forget_leaf(tensor_id)


class NativeModules(ModuleTable):
    """Module calls, which C++ records."""

    def __init__(self, session: Session, *tables: Any) -> None:
        super().__init__(session, *tables)
        self._enter = session.native.recording.enter_module
        self._exit = session.native.recording.exit_module

    @skip_dynamo_recursive
    def on_enter(self, module: torch.nn.Module) -> int | None:  # type: ignore[override]
        """Record that a module's forward starts; return the number of open calls before it."""
        try:
            state = self._local.state  # lets C++ know this thread
            module_id = self.find(module)
            if module_id is None and self._session.observes():
                module_id = self.intern(module, state)
            return None if module_id is None else self._enter(module_id)
        except Exception as error:  # noqa: BLE001 - whatever failed here, the module must run
            self._session.fail("modules", error)
            return None

    @skip_dynamo_recursive
    def on_exit(self, opened: int, output: Any) -> None:  # type: ignore[override]
        """Record that a module's forward ended (``output`` is None if it raised)."""
        try:
            if self._exit(opened, output is None):
                self._recent_outputs.remember(output)
        except Exception as error:  # noqa: BLE001
            self._session.fail("modules", error)


class NativeSaves(SaveTable):
    """Saves with ids from C++, which also records their release.

    Those of checkpoint's hooks are kept in C++.
    """

    def __init__(self, session: Session, *tables: Any) -> None:
        self._native = session.native.recording
        super().__init__(session, *tables)
        self.next_id: Callable[[], int] = self._native.next_saved_id
        self._intern = self._native.intern

    @property
    def count(self) -> int:
        """The number of saves so far, which is the id of the next one."""
        return self._native.saved_count()  # type: ignore[no-any-return]

    @count.setter
    def count(self, count: int) -> None:
        """Ignore a value: C++ counts."""

    def _emit_packing(
        self,
        tensor: torch.Tensor,
        packed_by: PackedBy,
        region: tuple[int | None, int | None],
        position: int | None,
    ) -> tuple[int, int | None, int]:
        """Record a save; return its id, the tensor's version and the node's sequence number."""
        _ = self._local.state  # lets C++ know this thread
        return self._native.record_packing(tensor, packed_by, *region, position)  # type: ignore[no-any-return]

    def _forget_released(self) -> None:
        """Forget the packed objects whose nodes have released them."""
        for saved_id in self._native.take_released():
            self.discard(saved_id)

    def packed(self, save: HookedSave, result: Any) -> None:
        """Remember the object that the pack hook returned for a save."""
        self._forget_released()
        self._native.discard_dead_packed(result)
        super().packed(save, result)

    def find(self, result: Any, node_id: int | None) -> HookedSave | None:
        """Return the save that a hook packed as ``result``: of this node, the least unpacked."""
        self._forget_released()
        return super().find(result, node_id)

    def prune(self, first_saved_id: int) -> None:
        """Forget the saves through hooks with smaller ids."""
        self._forget_released()
        self._native.prune_packed(first_saved_id)
        super().prune(first_saved_id)

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""
        self._native.release_packed(tensor)
        super().release(tensor)


class NativeNodes:
    """Walks graphs in C++; the interface is that of ``NodeTable``."""

    def __init__(
        self,
        session: Session,
        leaves: LeafTable,
        slots: SlotTable,
        functions: CustomFunctionTable,
    ) -> None:
        self._session = session
        self._native = session.native.recording
        self._add_leaf = leaves.add
        self._slots = slots
        self._functions = functions
        self.oldest = 0
        """Nodes whose description is older than this event are described again."""

    def id_of(self, node: Any) -> int:
        """Return a node's id."""
        return self._native.node_id(node)  # type: ignore[no-any-return]

    def is_new(self, node: Any) -> bool:
        """Return whether no walk has reached a node yet."""
        return self._native.is_new(node)  # type: ignore[no-any-return]

    def untag(self, roots: Iterable[Any]) -> None:
        """Forget the nodes that ``roots`` reach."""
        self._native.forget(list(roots))

    def walk(self, roots: Iterable[Any]) -> list[tuple[int, torch.Tensor]]:
        """Record every node that gradients of ``roots`` reach, once.

        Returns:
            The leaves that were not known, or have hooks: tensor id and tensor.
        """
        leaves, functions, unlocated = self._native.walk(
            list(roots), self.oldest, self._read_hooked
        )
        for slot in unlocated:
            message = f"the saved tensors of {slot} were not found in its memory: not recorded"
            self._session.emit(RecorderLimited, "slots", message)
        for tensor_id, leaf in leaves:
            self._add_leaf(tensor_id, leaf)
        for node_id, node in functions:
            self._functions.read_context(node, node_id)
        return leaves  # type: ignore[no-any-return]

    def _read_hooked(self, content: Any, node_id: int, sequence_nr: int | None, slot: str) -> int:
        """Record that a slot holds what a hook packed; return the id of the save."""
        return self._slots.read_hooked(content, node_id, sequence_nr, slot)[0]


class NativeRuns:
    """The runs of nodes, which C++ records; the interface is that of ``NodeRuns``."""

    def __init__(self, session: Session, gradients: GradientTable) -> None:
        self._native = session.native.recording
        self._reached = gradients.reached
        self.open: dict[int, EngineCall] = {}
        """The open engine calls by backward id."""

    def begin(
        self, call: EngineCall, leaves: list[tuple[int, torch.Tensor]]
    ) -> Iterator[tuple[torch.Tensor, int]]:
        """Observe the nodes that an engine call runs; yield the leaves that may have hooks."""
        self._native.begin_backward(call.backward_id, call.keep_graph)
        for tensor_id, leaf in leaves:
            yield leaf, tensor_id

    def end(self, call: EngineCall, *, failed: bool) -> None:
        """Remove an engine call that has returned or raised; finish its last nodes."""
        self.open.pop(call.backward_id, None)
        self._reached.update(self._native.end_backward(call.backward_id, failed))

    def on_first_hook(self) -> None:
        """Record that the last node has finished, if the first hook of another one runs."""
        self._native.hook_runs()

    def current(self) -> tuple[int | None, int | None]:
        """Return the backward and the node that run on this thread, by their ids."""
        return self._native.current_node()  # type: ignore[no-any-return]


class NativeRunning:
    """The nodes that run on a thread; the interface is the part of ``list`` that is needed."""

    def __init__(self, recording: Any) -> None:
        self._recording = recording

    def __len__(self) -> int:
        return self._recording.run_count()  # type: ignore[no-any-return]

    def __getitem__(self, _last: int) -> tuple[int, int]:
        """Return the backward and the node of the innermost run."""
        found = self._recording.last_run()
        if found is None:
            raise IndexError
        return found  # type: ignore[no-any-return]

    def __delitem__(self, after: slice) -> None:
        """Forget all runs but the first ones."""
        self._recording.drop_runs(after.start)
