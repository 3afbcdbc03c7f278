"""User hooks: every registration, and every call during backward.

NOTE [ How hooks are traced ]
PyTorch keeps hooks in dicts: a tensor's, a leaf's, a node's. Before and after every backward these
dicts hold the user's own functions; while the engine runs, each hook in a known dict is replaced by
a ``TracingHook`` under the same key, so that order, handles and removal stay the user's. The hooks
of modules are copied to lists when the module is called, and are wrapped there.

Dicts are known from the registration of a hook, and those of leaves also from the leaf. Hooks that
were registered on other tensors or on nodes before the recording are not seen. ``retain_grad`` is a
hook of C++: only its registration is recorded.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.autograd.graph
import torch.utils.hooks

from autogradviz.events import HookKind, HookRan, HookRegistered
from autogradviz.recorder.callable_names import hook_name
from autogradviz.recorder.own_hook import OwnHook
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.support.fork_safe_locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.engine_interface import Runs
    from autogradviz.recorder.module_calls import ModuleTable
    from autogradviz.recorder.session import Session, SessionRef

_OF_TORCH: Final = frozenset({torch.autograd.graph.__file__, torch.utils.hooks.__file__})
"""Hooks from these files call the user's hooks, which are traced by themselves."""

_COMPILERS: Final = str(Path(torch.__file__).parent / "_functorch") + os.sep
"""Hooks from here only keep stack traces for ``torch.compile``."""

_GRADIENTS: Final = {"module_backward_pre": 1, "module_backward": 1}
"""The argument that a hook's result replaces, if that is not the first."""

MAX_HOOKS: Final = 5_000
"""Hooks in no known dict that a long recording remembers."""

_RESULT_IGNORED: Final = frozenset({"post_accumulate_grad", "multi_grad"})
"""Kinds of hooks whose result PyTorch ignores."""


class NodeHooks(dict[Any, Any]):
    """The hooks of a node: like an ``OrderedDict`` to PyTorch's handles, at half the cost."""

    __slots__ = ("__weakref__",)


class TracingHook:
    """A hook that calls the original and records the call."""

    __slots__ = ("_hook_id", "_kind", "_table", "hook")

    def __init__(
        self, table: SessionRef[HookTable], hook: Any, hook_id: int, kind: HookKind
    ) -> None:
        self._table = table
        self.hook = hook
        self._hook_id = hook_id
        self._kind = kind

    @skip_frame
    def __call__(self, *args: Any) -> Any:
        """Call the original."""
        table = self._table.target
        if table is None:
            return self.hook(*args)
        guarded = table.session.guarded
        guarded("hooks", table.runs.on_first_hook)
        began = table.session.always_guarded("hooks", table.session.time_ns)
        try:
            result = self.hook(*args)
        except BaseException:
            guarded("hooks", self._emit, table, began, args, None, failed=True)
            raise
        guarded("hooks", self._emit, table, began, args, result, failed=False)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hook, name)

    def __repr__(self) -> str:
        return repr(self.hook)

    def _emit(
        self,
        table: HookTable,
        began: int | None,
        args: tuple[Any, ...],
        result: Any,
        *,
        failed: bool,
    ) -> None:
        kind: HookKind = self._kind
        if kind == "node":
            kind = "node_pre" if len(args) == 1 else "node_post"
        given = args[_GRADIENTS.get(kind, 0)] if args else None
        changed = result is not None and kind not in _RESULT_IGNORED and not _is_same(result, given)
        state = table.session.threads.local.state
        backward_id, node_id = table.runs.current()
        verifier = table.session.verifier
        if verifier is not None:
            verifier.hook_ran(backward_id, node_id, kind)
        table.session.emit(
            HookRan, self._hook_id, kind, backward_id, node_id, changed, failed,
            0 if began is None else table.session.time_ns() - began, thread=state.number,
        )  # fmt: skip


def _is_same(result: Any, given: Any) -> bool:
    if isinstance(result, tuple) and isinstance(given, tuple):
        same = [a is b for a, b in zip(result, given, strict=False)]
        return len(result) == len(given) and all(same)
    return result is given


class HookTable:
    """Assigns ids to hooks, and replaces them while the engine runs."""

    def __init__(self, session: Session, modules: ModuleTable, runs: Runs) -> None:
        self.session = session
        self.runs = runs
        self._find_module = modules.find
        self._count = 0
        self._lock = new_lock()
        self._open = 0  # engine calls
        self._ids: dict[int, int] = {}  # handle → hook
        self._dicts: dict[int, tuple[Callable[[], Any], HookKind, int | None]] = {}
        self.ref = session.ref(self)

    def new(
        self,
        kind: HookKind,
        hook: Any,
        *,
        tensor_id: int | None = None,
        module_id: int | None = None,
        early: bool = False,
    ) -> int:
        """Record that a hook was registered; ``early`` if that was before the recording."""
        hook_id = self._count
        self._count += 1
        self.session.emit(
            HookRegistered, hook_id, kind, hook_name(hook), tensor_id, module_id, early,
            stack_id=None if early else self.session.stack_id(),
        )  # fmt: skip
        return hook_id

    def watch(
        self, hooks: Any, kind: HookKind, tensor_id: int | None, fresh: int | None = None
    ) -> None:
        """Add a dict of hooks, and record the new hooks in it.

        Args:
            hooks: the dict.
            kind: of its hooks.
            tensor_id: of the tensor that the hooks belong to.
            fresh: the handle of the hook that was just registered, if any.
        """
        with self._lock:
            known = self._dicts.get(id(hooks))
            if known is None or known[0]() is not hooks:
                self._dicts[id(hooks)] = (_reference(hooks), kind, tensor_id)
                known = None
            if known is not None and fresh is not None and fresh in hooks:
                added = [(fresh, hooks[fresh])]  # there may be thousands of others
            else:
                added = list(hooks.items())
            for handle_id, hook in added:
                if handle_id in self._ids or isinstance(hook, (TracingHook, OwnHook)):
                    continue
                if not _is_of_torch(hook):
                    self._ids[handle_id] = self.new(
                        kind, hook, tensor_id=tensor_id, early=handle_id != fresh
                    )
            if self._open:
                self._replace(hooks, kind, added)

    def watch_leaf(self, leaf: torch.Tensor, tensor_id: int) -> None:
        """Add the dicts of a leaf, with the hooks from before the recording.

        Call it with function overrides disabled.
        """
        tensor_hooks = leaf._backward_hooks  # noqa: SLF001 - has no public name
        if tensor_hooks:
            self.watch(tensor_hooks, "tensor", tensor_id)
        accumulate_hooks: Any = leaf._post_accumulate_grad_hooks  # noqa: SLF001 - nor has this
        if accumulate_hooks:
            self.watch(accumulate_hooks, "post_accumulate_grad", tensor_id)

    def traced_list(self, module: Any, kind: HookKind, hooks: Any, dicts: Iterable[Any]) -> Any:
        """Return a module's hooks, traced; ``dicts`` are those that the hooks come from."""
        if not hooks:
            return hooks
        handles = {id(hook): handle for found in dicts for handle, hook in list(found.items())}
        traced = []
        for hook in hooks:
            handle_id = handles.get(id(hook), -1)
            hook_id = self._ids.get(handle_id)
            if hook_id is None:
                module_id = self._find_module(module)
                hook_id = self.new(kind, hook, module_id=module_id, early=True)
                self._ids[handle_id] = hook_id
            traced.append(TracingHook(self.ref, hook, hook_id, kind))
        return traced

    def assign(self, handle: Any, hook_id: int) -> None:
        """Remember the hook that a handle removes."""
        self._ids[handle.id] = hook_id

    def prune(self) -> None:
        """Remove dead dicts, and the oldest hooks in no known dict if there are too many."""
        with self._lock:
            live: set[int] = set()
            for key, (reference, _, _) in list(self._dicts.items()):
                hooks = reference()
                if hooks is None:
                    del self._dicts[key]
                else:
                    live.update(hooks)
            for handle_id in list(self._ids)[:-MAX_HOOKS]:
                if handle_id not in live:
                    del self._ids[handle_id]

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the hooks that may be seen again."""
        return set(self._ids.values())

    def begin(self) -> None:
        """Replace every hook; the engine is about to run."""
        with self._lock:
            self._open += 1
            for key, (reference, kind, _) in list(self._dicts.items()):
                hooks = reference()
                if hooks is None:
                    del self._dicts[key]
                else:
                    self._replace(hooks, kind, list(hooks.items()))

    def end(self, *, last: bool = False) -> None:
        """Restore every hook when the last engine call has returned, or if ``last`` is set."""
        with self._lock:
            self._open = 0 if last else max(self._open - 1, 0)
            if self._open:
                return
            for reference, _, _ in list(self._dicts.values()):
                hooks = reference() or {}
                for handle_id, hook in list(hooks.items()):
                    if isinstance(hook, TracingHook):
                        hooks[handle_id] = hook.hook
            for key, (reference, _, _) in list(self._dicts.items()):
                if isinstance(reference, _Strong):
                    del self._dicts[key]

    def _replace(self, hooks: Any, kind: HookKind, found: list[tuple[Any, Any]]) -> None:
        for handle_id, hook in found:
            hook_id = self._ids.get(handle_id)
            if hook_id is not None and not isinstance(hook, TracingHook):
                hooks[handle_id] = TracingHook(self.ref, hook, hook_id, kind)


class _Strong:
    """Returns a dict to which no weak reference can be made, until the engine has returned."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def __call__(self) -> Any:
        return self._hooks


def _reference(hooks: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(hooks)
    except TypeError:  # a program has assigned a plain dict
        return _Strong(hooks)


def _is_of_torch(hook: Any) -> bool:
    filename: str = getattr(getattr(hook, "__code__", None), "co_filename", "")
    return filename in _OF_TORCH or filename.startswith(_COMPILERS)
