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

import functools
import os
import weakref
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.autograd.graph
import torch.utils.hooks
from torch.autograd.function import Function
from torch.utils.hooks import BackwardHook, RemovableHandle

from autogradviz.events import ForwardHookRegistered, HookKind, HookRan, HookRegistered
from autogradviz.recorder.callable_names import hook_name
from autogradviz.recorder.own_hook import OwnHook
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import (
    patched,
    patched_in_all_modules,
    patched_tensor_method,
)
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    current,
    global_backward_hooks,
)
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.engine_interface import Runs, TensorIds
    from autogradviz.recorder.module_names_and_calls import ModuleTable
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


# --- the functions that register hooks, wrapped while a recording is open -------------------------


@contextmanager
def observe_hooks(
    session: Session, tensors: TensorIds, modules: ModuleTable, hooks: HookTable
) -> Iterator[None]:
    """Record the hooks that are registered, and their calls, while the context is open."""
    with ExitStack() as installed:
        installed.callback(hooks.end, last=True)
        for name, kind in _TENSOR_KINDS.items():
            installed.enter_context(_observe_tensor(session, tensors, hooks, name, kind))
        installed.enter_context(_observe_retain_grad(session, tensors, hooks))
        installed.enter_context(_observe_nodes(session, hooks))
        installed.enter_context(_observe_multi(session, hooks))
        for name, kind in _MODULE_KINDS.items():
            installed.enter_context(_observe_module(session, modules, hooks, name, kind))
        for name in ("register_forward_hook", "register_forward_pre_hook"):
            installed.enter_context(_observe_forward_hooks(session, modules, name))
        installed.enter_context(_observe_module_calls(session, hooks))
        yield


_TENSOR_KINDS: Final[dict[str, HookKind]] = {
    "register_hook": "tensor",
    "register_post_accumulate_grad_hook": "post_accumulate_grad",
}


@contextmanager
def _observe_tensor(
    session: Session, tensors: TensorIds, hooks: HookTable, name: str, kind: HookKind
) -> Iterator[None]:
    original = getattr(torch.Tensor, name)
    attribute = "_backward_hooks" if kind == "tensor" else "_post_accumulate_grad_hooks"

    def record(tensor: torch.Tensor, handle: Any) -> None:
        if isinstance(handle, RemovableHandle):
            with DisableTorchFunction():
                tensor_id = tensors.intern(tensor)
                hooks.watch(getattr(tensor, attribute), kind, tensor_id, handle.id)

    @skip_frame
    def register(self: torch.Tensor, hook: Any) -> Any:
        handle = original(self, hook)
        session.guarded("hooks", record, self, handle)
        return handle

    with patched_tensor_method(name, register):
        yield


@contextmanager
def _observe_retain_grad(session: Session, tensors: TensorIds, hooks: HookTable) -> Iterator[None]:
    original = torch.Tensor.retain_grad

    def record(tensor: torch.Tensor) -> None:
        with DisableTorchFunction():
            if tensor.retains_grad:
                hooks.new("retain_grad", original, tensor_id=tensors.intern(tensor))

    @skip_frame
    def retain_grad(self: torch.Tensor) -> Any:
        with DisableTorchFunction():
            before = self.retains_grad
        result = original(self)
        if not before:
            session.guarded("hooks", record, self)
        return result

    with patched_tensor_method("retain_grad", retain_grad):
        yield


@contextmanager
def _observe_nodes(session: Session, hooks: HookTable) -> Iterator[None]:
    """Nodes are C++; all of them store their hooks through this one Python function."""
    original = current("autograd.function.Function._register_hook")

    @skip_frame
    def register(backward_hooks: Any, hook: Any) -> Any:
        if isinstance(hook, OwnHook):
            # Instead of a handle the dict itself: a handle of PyTorch's, which can be pickled and
            # refers to its dict weakly, costs more than the hook.
            own = NodeHooks() if backward_hooks is None else backward_hooks
            own[hook] = hook
            return own, own
        result = original(backward_hooks, hook)
        session.guarded("hooks", hooks.watch, result[0], "node", None, result[1].id)
        return result

    # PyTorch looks it up on Function with a new string each time, and therefore along all bases;
    # on Function itself it is found at once.
    with patched(Function, _register_hook=staticmethod(register)):
        yield


@contextmanager
def _observe_multi(session: Session, hooks: HookTable) -> Iterator[None]:
    original = torch.autograd.graph.register_multi_grad_hook

    @skip_frame
    def register(tensors: Any, fn: Any, *, mode: Any = "all") -> Any:
        hook_id = session.guarded("hooks", hooks.new, "multi_grad", fn)
        if hook_id is None:
            return original(tensors, fn, mode=mode)
        traced = TracingHook(hooks.ref, fn, hook_id, "multi_grad")

        @functools.wraps(fn)
        @skip_frame
        def call(gradients: Any) -> Any:
            return traced(gradients)

        return original(tensors, call, mode=mode)

    register = functools.wraps(original)(register)
    # Other modules hold the same function under its name.
    with patched_in_all_modules("register_multi_grad_hook", original, register):
        yield


_MODULE_KINDS: Final[dict[str, HookKind]] = {
    "register_full_backward_pre_hook": "module_backward_pre",
    "register_full_backward_hook": "module_backward",
}


@contextmanager
def _observe_module(
    session: Session, modules: ModuleTable, hooks: HookTable, name: str, kind: HookKind
) -> Iterator[None]:
    original = getattr(torch.nn.Module, name)

    def record(module: torch.nn.Module, hook: Any, handle: Any) -> None:
        hooks.assign(handle, hooks.new(kind, hook, module_id=modules.find(module)))

    @skip_frame
    def register(self: torch.nn.Module, hook: Any, *args: Any, **kwargs: Any) -> Any:
        handle = original(self, hook, *args, **kwargs)
        session.guarded("hooks", record, self, hook, handle)
        return handle

    with patched(torch.nn.Module, **{name: functools.wraps(original)(register)}):
        yield


@contextmanager
def _observe_forward_hooks(session: Session, modules: ModuleTable, name: str) -> Iterator[None]:
    """Record the registrations only: compiled code may leave out hooks that are registered late."""
    original = getattr(torch.nn.Module, name)

    def record(module: torch.nn.Module, hook: Any) -> None:
        session.emit(
            ForwardHookRegistered, modules.find(module), hook_name(hook),
            stack_id=session.stack_id(),
        )  # fmt: skip

    @skip_frame
    def register(self: torch.nn.Module, hook: Any, *args: Any, **kwargs: Any) -> Any:
        handle = original(self, hook, *args, **kwargs)
        session.guarded("hooks", record, self, hook)
        return handle

    with patched(torch.nn.Module, **{name: functools.wraps(original)(register)}):
        yield


@contextmanager
def _observe_module_calls(session: Session, hooks: HookTable) -> Iterator[None]:
    original = BackwardHook.__init__

    def traced(module: Any, user_hooks: Any, user_pre_hooks: Any) -> tuple[Any, Any]:
        for_all, pre_for_all = global_backward_hooks()
        dicts = (module._backward_hooks, for_all)  # noqa: SLF001
        pre_dicts = (module._backward_pre_hooks, pre_for_all)  # noqa: SLF001
        return (
            hooks.traced_list(module, "module_backward", user_hooks, dicts),
            hooks.traced_list(module, "module_backward_pre", user_pre_hooks, pre_dicts),
        )

    @skip_frame
    def begin(self: Any, module: Any, user_hooks: Any, user_pre_hooks: Any) -> None:
        pair = session.guarded("hooks", traced, module, user_hooks, user_pre_hooks)
        original(self, module, *(pair or (user_hooks, user_pre_hooks)))

    with patched(BackwardHook, __init__=begin):
        yield
