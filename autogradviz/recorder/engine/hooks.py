"""The hook seam: what users registered, and every time that backward called it.

NOTE [ Whose hook is it? ]
PyTorch keeps hooks in dicts: a tensor's, a leaf's, a node's. The dicts hold what users put in,
before and after every backward; while the engine runs, each hook in a dict that we know stands
behind a ``TracingHook``, in its own place, so that order, handles and removal are the user's.
Modules' hooks are copied to lists when the module is called, and are watched there.

Dicts are known from the registration, and leaves' also from the leaf. Hooks that were put on
other tensors or on nodes before the recording are not seen, and ``retain_grad`` is a hook of
C++: its registration is all that can be told.
"""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.autograd.graph
import torch.utils.hooks

from autogradviz.events import HookKind, HookRan, HookRegistered
from autogradviz.recorder.torch_internals.dynamo import transparent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.recorder import Recorder, RecorderRef

_current_node = torch._C._current_autograd_node  # noqa: SLF001
_OF_TORCH: Final = frozenset({torch.autograd.graph.__file__, torch.utils.hooks.__file__})
"""Hooks from these files call the user's: multi-grad hooks and modules' are watched as such."""

_COMPILERS: Final = str(Path(torch.__file__).parent / "_functorch") + os.sep
"""Hooks from here only keep stack traces for ``torch.compile``."""

_GIVEN: Final = {"module_backward_pre": 1, "module_backward": 1}
"""Which argument a hook's result replaces, where that is not the first."""

MAX_HOOKS: Final = 5_000
"""Hooks that are remembered in a long recording although nothing known holds them."""

_NOTHING: Final = frozenset({"post_accumulate_grad", "multi_grad"})
"""Kinds whose result PyTorch does not look at."""


class RecorderHook:
    """A hook of the recorder's own, which nobody else has to hear of."""

    __slots__ = ()


class NodeHooks(dict[Any, Any]):
    """A node's hooks: all of an ``OrderedDict`` that PyTorch's handles need, at half its cost."""

    __slots__ = ("__weakref__",)


class TracingHook:
    """A hook that does what the original does, and tells of it."""

    __slots__ = ("_gate", "_hook_id", "_kind", "hook")

    def __init__(self, gate: RecorderRef, hook: Any, hook_id: int, kind: HookKind) -> None:
        self._gate = gate
        self.hook = hook
        self._hook_id = hook_id
        self._kind = kind

    @transparent
    def __call__(self, *args: Any) -> Any:
        """Call the original."""
        recorder = self._gate.recorder
        if recorder is None:
            return self.hook(*args)
        recorder.guarded("hooks", recorder.backwards.entered, _current_node())
        began = perf_counter_ns()
        try:
            result = self.hook(*args)
        except BaseException:
            recorder.guarded("hooks", self._emit, recorder, began, args, None, failed=True)
            raise
        recorder.guarded("hooks", self._emit, recorder, began, args, result, failed=False)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hook, name)

    def __repr__(self) -> str:
        return repr(self.hook)

    def _emit(
        self, recorder: Recorder, began: int, args: tuple[Any, ...], result: Any, *, failed: bool
    ) -> None:
        kind: HookKind = self._kind
        if kind == "node":
            kind = "node_pre" if len(args) == 1 else "node_post"
        given = args[_GIVEN.get(kind, 0)] if args else None
        changed = result is not None and kind not in _NOTHING and not _is_same(result, given)
        node = _current_node()
        metadata: Any = None if node is None else node.metadata
        tag = None if metadata is None else metadata.get(recorder.gate)
        state = recorder.threads.local.state
        entry = recorder.backwards.entry_of(state)
        recorder.emit(
            HookRan, self._hook_id, kind, None if entry is None else entry.backward_id,
            None if tag is None else tag.node_id, changed, failed, perf_counter_ns() - began,
            thread=state.number,
        )  # fmt: skip


def _is_same(result: Any, given: Any) -> bool:
    if isinstance(result, tuple) and isinstance(given, tuple):
        same = [a is b for a, b in zip(result, given, strict=False)]
        return len(result) == len(given) and all(same)
    return result is given


class HookTable:
    """Numbers hooks, and stands in for them while the engine runs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._count = 0
        self._lock = threading.RLock()
        self._open = 0  # engine entries
        self._numbers: dict[int, int] = {}  # handle → hook
        self._dicts: dict[int, tuple[weakref.ref[Any], HookKind, int | None]] = {}

    def new(
        self,
        kind: HookKind,
        hook: Any,
        *,
        tensor_id: int | None = None,
        module_id: int | None = None,
        early: bool = False,
    ) -> int:
        """Record that a hook was registered, or ``early`` that it had been before."""
        recorder = self._recorder
        hook_id = self._count
        self._count += 1
        with_stack = recorder.with_stacks and not early
        recorder.emit(
            HookRegistered, hook_id, kind, hook_name(hook), tensor_id, module_id, early,
            stack_id=recorder.stacks.capture(3) if with_stack else None,
        )  # fmt: skip
        return hook_id

    def watch(
        self, hooks: Any, kind: HookKind, tensor_id: int | None, fresh: int | None = None
    ) -> None:
        """Know a dict of hooks, and number what is new in it; ``fresh`` is added just now."""
        with self._lock:
            self._dicts[id(hooks)] = (weakref.ref(hooks), kind, tensor_id)
            for handle_id, hook in list(hooks.items()):
                if handle_id in self._numbers or isinstance(hook, (TracingHook, RecorderHook)):
                    continue
                if not _is_of_torch(hook):
                    self._numbers[handle_id] = self.new(
                        kind, hook, tensor_id=tensor_id, early=handle_id != fresh
                    )
            if self._open:
                self._stand_in(hooks, kind)

    def watch_leaf(self, leaf: torch.Tensor, tensor_id: int) -> None:
        """Know the hooks of a leaf, those from before the recording too.

        Call it with PyTorch's function overrides switched off.
        """
        tensor_hooks = leaf._backward_hooks  # noqa: SLF001 - has no public name
        if tensor_hooks:
            self.watch(tensor_hooks, "tensor", tensor_id)
        accumulate_hooks: Any = leaf._post_accumulate_grad_hooks  # noqa: SLF001 - nor has this
        if accumulate_hooks:
            self.watch(accumulate_hooks, "post_accumulate_grad", tensor_id)

    def watched_list(self, module: Any, kind: HookKind, hooks: Any, known: Iterable[Any]) -> Any:
        """Return a module's hooks, watched; ``known`` are the dicts that they come from."""
        if not hooks:
            return hooks
        handles = {id(hook): handle for found in known for handle, hook in list(found.items())}
        watched = []
        for hook in hooks:
            handle_id = handles.get(id(hook), -1)
            hook_id = self._numbers.get(handle_id)
            if hook_id is None:
                module_id = self._recorder.modules.find(module)
                hook_id = self.new(kind, hook, module_id=module_id, early=True)
                self._numbers[handle_id] = hook_id
            watched.append(TracingHook(self._recorder.gate, hook, hook_id, kind))
        return watched

    def number(self, handle: Any, hook_id: int) -> None:
        """Remember which hook a handle removes."""
        self._numbers[handle.id] = hook_id

    def forget(self) -> None:
        """Let go of dicts that have died, and of the oldest hooks if they are too many."""
        with self._lock:
            living: set[int] = set()
            for key, (reference, _, _) in list(self._dicts.items()):
                hooks = reference()
                if hooks is None:
                    del self._dicts[key]
                else:
                    living.update(hooks)
            for handle_id in list(self._numbers)[:-MAX_HOOKS]:
                if handle_id not in living:
                    del self._numbers[handle_id]

    @property
    def living(self) -> AbstractSet[int]:
        """The numbers that may be used again."""
        return set(self._numbers.values())

    def begin(self) -> None:
        """Stand in for every hook: the engine is about to run."""
        with self._lock:
            self._open += 1
            for key, (reference, kind, _) in list(self._dicts.items()):
                hooks = reference()
                if hooks is None:
                    del self._dicts[key]
                else:
                    self._stand_in(hooks, kind)

    def end(self, *, last: bool = False) -> None:
        """Give every hook its place back, when the last engine entry has ended."""
        with self._lock:
            self._open = 0 if last else max(self._open - 1, 0)
            if self._open:
                return
            for reference, _, _ in list(self._dicts.values()):
                hooks = reference() or {}
                for handle_id, hook in list(hooks.items()):
                    if isinstance(hook, TracingHook):
                        hooks[handle_id] = hook.hook

    def _stand_in(self, hooks: Any, kind: HookKind) -> None:
        gate = self._recorder.gate
        for handle_id, hook in list(hooks.items()):
            hook_id = self._numbers.get(handle_id)
            if hook_id is not None and not isinstance(hook, TracingHook):
                hooks[handle_id] = TracingHook(gate, hook, hook_id, kind)


def _is_of_torch(hook: Any) -> bool:
    filename: str = getattr(getattr(hook, "__code__", None), "co_filename", "")
    return filename in _OF_TORCH or filename.startswith(_COMPILERS)


def hook_name(hook: Any) -> str:
    """Return what a hook is called in its source."""
    while isinstance(hook, partial):
        hook = hook.func
    name = getattr(hook, "__qualname__", None)
    return str(name) if isinstance(name, str) else f"{type(hook).__qualname__}.__call__"
