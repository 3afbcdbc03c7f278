"""The module seam: which module runs, and what modules and parameters are called.

Names come from the model that was given, or from the outermost module that is called: its
``named_modules`` are walked once.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import ModuleEntered, ModuleExited, ModuleSeen, ParameterSeen
from autogradviz.recorder.dynamo import swap_remembered_call, transparent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.threads import ThreadState

_sequence_nr = torch._C._autograd._get_sequence_nr  # noqa: SLF001
_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001


class ModuleTable:
    """Numbers modules without holding them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._calls = 0

    def add_root(self, module: torch.nn.Module, name: str) -> None:
        """Number a module and everything in it; ``name`` goes before their own names."""
        numbers: dict[str, int] = {}
        for path, child in module.named_modules(remove_duplicate=False):
            qualified = ".".join(part for part in (name, path) if part)
            known = self.find(child)
            if known is None:
                parent = numbers.get(path.rpartition(".")[0]) if path else None
                known = self._add(child, qualified, parent)
            numbers[path] = known
        with _NoFunctions():
            self._add_tensors(module, name, numbers)

    def _add_tensors(self, module: torch.nn.Module, name: str, numbers: dict[str, int]) -> None:
        named: list[tuple[str, Any, bool]] = [
            (path, p, False) for path, p in module.named_parameters(remove_duplicate=False)
        ]
        named += [(path, b, True) for path, b in module.named_buffers(remove_duplicate=False)]
        for path, tensor, buffer in named:
            if torch.nn.parameter.is_lazy(tensor):
                continue
            tensor_id = self._recorder.tensors.number(tensor)
            if not buffer:
                self._recorder.leaves.met(tensor_id, tensor)
            self._recorder.emit(
                ParameterSeen,
                tensor_id,
                numbers[path.rpartition(".")[0]],
                ".".join(part for part in (name, path) if part),
                buffer,
                tensor.requires_grad,
            )

    def find(self, module: torch.nn.Module) -> int | None:
        """Return a module's number, None for one that was never met."""
        known = self._known.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def _add(self, module: torch.nn.Module, name: str, parent: int | None) -> int:
        module_id = len(self._names)
        self._known[id(module)] = (weakref.ref(module), module_id)
        self._names[module_id] = name
        self._recorder.emit(ModuleSeen, module_id, parent, name, type(module).__name__)
        return module_id

    def number(self, module: torch.nn.Module, state: ThreadState) -> int:
        """Return a module's number, naming it and its children at the first call."""
        known = self.find(module)
        if known is None:
            if state.modules:  # a child made or attached after its root was walked
                parent = state.modules[-1]
                label = type(module).__name__
                return self._add(module, self._free(f"{self._names[parent]}.{label}"), parent)
            self.add_root(module, self._free(type(module).__name__))
            known = self.find(module)
            assert known is not None
        return known

    def _free(self, name: str) -> str:
        """Return a name that no other root has: "Linear", "Linear#2", ...."""
        name = name.lstrip(".")
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def entered(self, module: torch.nn.Module) -> int:
        """Record that a module's forward begins; return how many calls were open before it."""
        recorder = self._recorder
        number = _sequence_nr()
        state = recorder.threads.state(number)
        module_id = self.number(module, state)
        call_id = self._calls
        self._calls += 1
        parent = state.calls[-1] if state.calls else None
        recorder.emit(ModuleEntered, call_id, parent, module_id, number, thread=state.number)
        state.calls.append(call_id)
        state.modules.append(module_id)
        return len(state.calls) - 1

    def exited(self, depth: int, output: Any) -> None:
        """Record that a module's forward ended (``output`` is None when it raised)."""
        recorder = self._recorder
        state = recorder.threads.state()
        while len(state.calls) > depth:
            call_id = state.calls.pop()
            state.modules.pop()
            recorder.emit(
                ModuleExited, call_id, _sequence_nr(), output is None, thread=state.number
            )
        if not state.calls:
            recorder.remember(output)


@contextmanager
def observe_modules(recorder: Recorder) -> Iterator[None]:
    """Record every module call while the context is open."""
    table = recorder.modules
    original = torch.nn.Module.__call__

    @transparent
    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        depth = recorder.guarded("modules", table.entered, self)
        output = None
        try:
            output = original(self, *args, **kwargs)
        finally:
            if depth is not None:
                recorder.guarded("modules", table.exited, depth, output)
        return output

    torch.nn.Module.__call__ = call  # type: ignore[method-assign]
    swap_remembered_call(original, call)
    try:
        yield
    finally:
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]
        swap_remembered_call(call, original)
