"""The module seam: which module runs, and what modules and parameters are called.

Names come from the model that was given, or from the outermost module that is called: its
``named_modules`` are walked once.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from autogradviz.events import ModuleEntered, ModuleExited, ModuleSeen, ParameterSeen
from autogradviz.recorder.torch_internals.dynamo import hidden, swap_remembered_call, transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.threads import ThreadState

_sequence_nr = torch._C._autograd._get_sequence_nr  # noqa: SLF001
_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001
_Parameter: Final = torch.nn.Parameter
_get_tracing_state = torch._C._get_tracing_state  # noqa: SLF001


_Waiting: TypeAlias = tuple[str, torch.nn.Module, tuple[int, ...]]
"""A module that is to be numbered: its name, itself, and the modules that it stands in."""


class ModuleTable:
    """Numbers modules without holding them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._count = 0
        self._calls = 0
        self._tell_seen = recorder.emitter(ModuleSeen)
        self._tell_parameter = recorder.emitter(ParameterSeen)
        self._tell_entered = recorder.emitter(ModuleEntered)
        self._tell_exited = recorder.emitter(ModuleExited)

    def add_root(self, module: torch.nn.Module, name: str) -> None:
        """Number a module and everything in it; ``name`` goes before their own names."""
        found: list[tuple[str, torch.nn.Module, int]] = []
        # Not ``named_modules``: its generators, one in another, cost as much as all the rest.
        waiting: list[_Waiting] = [(name, module, ())]
        while waiting:
            path, child, above = waiting.pop()
            known = self.find(child)
            if known is None:
                known = self._add(child, path, above[-1] if above else None)
            elif known in above:  # it stands in itself
                continue
            found.append((path, child, known))
            if child._modules:  # noqa: SLF001 - as named_modules reads it
                below: list[_Waiting] = [
                    (f"{path}.{label}" if path else label, each, (*above, known))
                    for label, each in child._modules.items()  # noqa: SLF001
                    if each is not None
                ]
                waiting += reversed(below)
        with _NoFunctions():
            for buffer in (False, True):
                for path, child, known in found:
                    tensors = child._buffers if buffer else child._parameters  # noqa: SLF001
                    if tensors:
                        self._add_tensors(tensors, path, known, buffer=buffer)

    def _add_tensors(
        self, tensors: Mapping[str, Any], module_name: str, module_id: int, *, buffer: bool
    ) -> None:
        recorder = self._recorder
        number, met, tell = recorder.tensors.number, recorder.leaves.met, self._tell_parameter
        thread = recorder.threads.local.state.number
        for name, tensor in tensors.items():
            if tensor is None or (type(tensor) is not _Parameter and is_lazy(tensor)):
                continue
            tensor_id = number(tensor)
            requires = tensor.requires_grad
            if not buffer:
                met(tensor_id, tensor)
            path = f"{module_name}.{name}" if module_name else name
            tell(thread, None, tensor_id, module_id, path, buffer, requires)

    def find(self, module: torch.nn.Module) -> int | None:
        """Return a module's number, None for one that was never met."""
        known = self._known.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def _add(self, module: torch.nn.Module, name: str, parent: int | None) -> int:
        module_id = self._count
        self._count += 1
        dead = self._known.get(id(module))  # whose address is used anew
        if dead is not None:
            self._let_go(dead[1])
        self._known[id(module)] = (weakref.ref(module), module_id)
        self._names[module_id] = name
        thread = self._recorder.threads.local.state.number
        self._tell_seen(thread, None, module_id, parent, name, type(module).__name__)
        return module_id

    def forget(self) -> None:
        """Let go of modules that have died."""
        dead = [(key, number) for key, (module, number) in self._known.items() if module() is None]
        for key, number in dead:
            del self._known[key]
            self._let_go(number)

    def _let_go(self, module_id: int) -> None:
        """Forget a dead module's name, unless a call of it is still open."""
        if not any(module_id in state.modules for state in self._recorder.threads):
            self._names.pop(module_id, None)

    @property
    def living(self) -> AbstractSet[int]:
        """The numbers that may be used again."""
        return self._names.keys()

    def number(self, module: torch.nn.Module, state: ThreadState) -> int | None:
        """Return a module's number, naming it and its children at the first call.

        One that is first called while it is traced has none: our look would be traced.
        """
        known = self.find(module)
        if known is not None or _get_tracing_state() is not None:
            return known
        if state.modules:  # a child made or attached after its root was walked
            parent = state.modules[-1]
            label = type(module).__name__
            return self._add(module, self._free(f"{self._names[parent]}.{label}"), parent)
        self.add_root(module, self._free(type(module).__name__))
        return self.find(module)

    def _free(self, name: str) -> str:
        """Return a name that no other root has: "Linear", "Linear#2", ...."""
        name = name.lstrip(".")
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    @hidden
    def entered(self, module: torch.nn.Module) -> tuple[int, int] | None:
        """Record that a module's forward begins; return what was open before it."""
        recorder = self._recorder
        try:
            number = _sequence_nr()
            state = recorder.threads.local.state
            module_id = self.number(module, state)
            if module_id is None:
                return None
            call_id = self._calls
            self._calls += 1
            calls = state.calls
            opened = (len(calls), len(state.marks))
            self._tell_entered(
                state.number, None, call_id, calls[-1] if calls else None, module_id, number
            )
            if recorder.with_marks:
                recorder.stacks.mark(1, state)
            calls.append(call_id)
            state.modules.append(module_id)
        except Exception as error:  # noqa: BLE001 - whatever we got wrong, the module must run
            recorder.fail("modules", error)
            return None
        return opened

    @hidden
    def exited(self, opened: tuple[int, int], output: Any) -> None:
        """Record that a module's forward ended (``output`` is None when it raised)."""
        recorder = self._recorder
        try:
            state = recorder.threads.local.state
            calls = state.calls
            depth, marks = opened
            del state.marks[marks:]
            while len(calls) > depth:
                call_id = calls.pop()
                state.modules.pop()
                self._tell_exited(state.number, None, call_id, _sequence_nr(), output is None)
            if not calls:
                recorder.newest.remember(output)
        except Exception as error:  # noqa: BLE001
            recorder.fail("modules", error)


@contextmanager
def observe_modules(recorder: Recorder) -> Iterator[None]:
    """Record every module call while the context is open."""
    entered: Callable[[torch.nn.Module], tuple[int, int] | None] = recorder.modules.entered
    exited = recorder.modules.exited
    original = torch.nn.Module.__call__

    @transparent
    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        opened = entered(self)
        output = None
        try:
            output = original(self, *args, **kwargs)
        finally:
            if opened is not None:
                exited(opened, output)
        return output

    with patched(torch.nn.Module, __call__=call):
        swap_remembered_call(original, call)
        try:
            yield
        finally:
            swap_remembered_call(call, original)
            entered = _hand_on  # somebody may have kept ours


def _hand_on(_module: torch.nn.Module) -> None:
    """Record nothing: the recording has ended."""
