"""Module calls, and the names of modules and parameters.

Names come from the model that was passed, or from the outermost module that is called: its
``named_modules`` are walked once. The outermost one has the name of its class, or of the variable
that holds it if that says more (``names_in_program.py``).
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from autogradviz.events import ModuleSeen, ParameterSeen
from autogradviz.recorder.names_in_program import (
    is_named_by_class,
    name_in_containers,
    name_in_program,
)
from autogradviz.recorder.torch_internals.checkpoint_frames_and_module_calls import (
    let_calls_pass,
    wrap_module_call,
)
from autogradviz.recorder.torch_internals.keep_dynamo_out import RememberedCall
from autogradviz.recorder.torch_internals.nodes import is_trainable_leaf
from autogradviz.recorder.torch_internals.patches import hidden_from_compilers, patched
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    get_tracing_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.engine_interface import ModuleCalls, TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState

_Parameter: Final = torch.nn.Parameter
_NEAR_LIMIT: Final = "calls of modules near the recursion limit were not recorded"


_Waiting: TypeAlias = tuple[str, torch.nn.Module, tuple[int, ...]]
"""A module that is to be added: its name, itself, and the ids of the modules that contain it."""


def _plain_leaves(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the attributes of a module that are leaves and no parameters, by name.

    PyTorch lists them nowhere: an optimizer of ``module.parameters()`` does not update them.
    """
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) is torch.Tensor and is_trainable_leaf(value)
    }


class ModuleTable:
    """Assigns ids and names to modules without keeping them alive."""

    def __init__(self, session: Session, tensors: TensorIds, leaves: LeafTable) -> None:
        self._session = session
        self._local = session.threads.local
        self._intern = tensors.intern
        self._leaves = leaves
        self._add_leaf = leaves.add
        self._known: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._roots: set[int] = set()
        self._count = 0
        self._emit_seen = session.emitter(ModuleSeen)
        self._emit_parameter = session.emitter(ParameterSeen)

    def add_root(self, module: torch.nn.Module, name: str, parent: int | None = None) -> None:
        """Add a module and everything in it.

        Args:
            module: the outermost one.
            name: the prefix of the names inside.
            parent: the module in whose call it was found.
        """
        found: list[tuple[str, torch.nn.Module, int]] = []
        # Not ``named_modules``: its nested generators cost as much as all the rest.
        waiting: list[_Waiting] = [(name, module, ())]
        while waiting:
            path, child, above = waiting.pop()
            known = self.find(child)
            if known is None:
                known = self._add(child, path, above[-1] if above else parent)
            elif known in above:  # it contains itself
                continue
            found.append((path, child, known))
            if child._modules:  # noqa: SLF001 - as named_modules reads it
                below: list[_Waiting] = [
                    (f"{path}.{label}" if path else label, each, (*above, known))
                    for label, each in child._modules.items()  # noqa: SLF001
                    if each is not None
                ]
                waiting += reversed(below)
        with DisableTorchFunction():
            for buffer in (False, True):
                for path, child, known in found:
                    tensors = child._buffers if buffer else child._parameters  # noqa: SLF001
                    if tensors:
                        self._add_tensors(tensors, path, known, buffer=buffer)
            for path, child, known in found:
                plain = _plain_leaves(child)
                if plain:
                    self._add_tensors(plain, path, known, buffer=False)
                    self._leaves.in_modules.update(map(self._intern, plain.values()))

    def _add_tensors(
        self, tensors: Mapping[str, Any], module_name: str, module_id: int, *, buffer: bool
    ) -> None:
        intern, add_leaf, emit = self._intern, self._add_leaf, self._emit_parameter
        thread = self._local.state.number
        for name, tensor in tensors.items():
            if tensor is None or (type(tensor) is not _Parameter and is_lazy(tensor)):
                continue
            tensor_id = intern(tensor)
            requires_grad = tensor.requires_grad
            if not buffer:
                add_leaf(tensor_id, tensor)
            path = f"{module_name}.{name}" if module_name else name
            emit(thread, None, tensor_id, module_id, path, buffer, requires_grad)

    def since(self, module_id: int) -> list[tuple[str, weakref.ref[torch.nn.Module]]]:
        """Return name and reference of each live module that was added from an id on."""
        if module_id == self._count:
            return []
        return [
            (self._names.get(number, ""), module)
            for module, number in self._known.copy().values()
            if number >= module_id
        ]

    @property
    def count(self) -> int:
        """The number of modules that were added so far."""
        return self._count

    def find(self, module: torch.nn.Module) -> int | None:
        """Return a module's id, None if it is unknown."""
        known = self._known.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def _add(self, module: torch.nn.Module, name: str, parent: int | None) -> int:
        module_id = self._count
        self._count += 1
        dead = self._known.get(id(module))  # its address was reused
        if dead is not None:
            self._roots.discard(dead[1])
            self._release_name(dead[1])
        self._known[id(module)] = (weakref.ref(module), module_id)
        self._names[module_id] = name
        thread = self._local.state.number
        if parent is None:
            self._roots.add(module_id)
        self._emit_seen(thread, None, module_id, parent, name, type(module).__name__)
        return module_id

    def prune(self) -> None:
        """Remove dead modules."""
        for key, (module, number) in self._known.copy().items():
            if module() is None:
                self._known.pop(key, None)
                self._roots.discard(number)
                self._release_name(number)

    def _release_name(self, module_id: int) -> None:
        """Remove a dead module's name, unless a call of the module is still open."""
        if not any(module_id in state.modules for state in self._session.threads):
            self._names.pop(module_id, None)

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the modules that may be seen again."""
        return self._names.keys()

    def intern(self, module: torch.nn.Module, state: ThreadState) -> int | None:
        """Return a module's id; add it and its children at its first call.

        A module that is first called while it is traced gets no id: adding it would be traced.
        """
        known = self.find(module)
        if known is not None or get_tracing_state() is not None:
            return known
        name, parent = type(module).__name__, None
        if state.modules:  # a child that was created or attached after its root was walked
            parent = state.modules[-1]
            name = f"{self._names[parent]}.{self._attribute(parent, module) or name}"
        elif not is_named_by_class(module) or name in self._taken:
            name = name_in_program(module) or name
        self.add_root(module, self._unique(name), parent)
        return self.find(module)

    def _attribute(self, parent: int, module: torch.nn.Module) -> str:
        """Return "layers[1]" for a module in a plain list of another one, "" if it is in none."""
        live = (
            reference() for reference, number in self._known.copy().values() if number == parent
        )
        owner = next(live, None)
        return "" if owner is None else name_in_containers(vars(owner), module)

    def _unique(self, name: str) -> str:
        """Return a name that no other root has: "Net", "Net#2", ...."""
        name = name.lstrip(".")
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def is_training(self) -> bool | None:
        """Return whether the outermost module that runs on this thread is in training mode.

        If none runs, the mode of all outermost modules; None if they differ.
        """
        running = self._local.state.modules[:1]
        live = [(module(), number) for module, number in self._known.copy().values()]
        roots = running or self._roots
        modes = {each.training for each, number in live if each is not None and number in roots}
        return modes.pop() if len(modes) == 1 else None

    def name_of(self, module_id: int) -> str:
        """Return the name of a module that was added."""
        return self._names[module_id]


@contextmanager
def observe_modules(session: Session, calls: ModuleCalls) -> Iterator[None]:
    """Record every module call while the context is open."""
    original = torch.nn.Module.__call__
    missed: list[str] = []
    call = wrap_module_call(original, calls.on_enter, calls.on_exit, missed)
    names = ("__call__", original.__name__)  # the same function, which is pickled by its name
    ours = {name: call for name in names if vars(torch.nn.Module).get(name) is original}
    try:
        with (
            patched(torch.nn.Module, **ours),
            hidden_from_compilers(RememberedCall(original, call)),
        ):
            yield
    finally:
        let_calls_pass(call)  # other code may hold the wrapper
        if missed:
            session.guarded("modules", _report_missed)


def _report_missed() -> None:
    raise RecursionError(_NEAR_LIMIT)
