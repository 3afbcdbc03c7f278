"""The functions that register hooks, wrapped while a recording is open."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.autograd.graph
from torch.autograd.function import Function
from torch.utils.hooks import BackwardHook, RemovableHandle

from autogradviz.events import ForwardHookRegistered
from autogradviz.recorder.backward.user_hooks import NodeHooks, TracingHook
from autogradviz.recorder.callable_names import hook_name
from autogradviz.recorder.own_hook import OwnHook
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched, patched_in_all_modules
from autogradviz.recorder.torch_internals.patch_tensor_methods import patched_tensor_method
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    current,
    global_backward_hooks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.events import HookKind
    from autogradviz.recorder.backward.user_hooks import HookTable
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.module_calls import ModuleTable
    from autogradviz.recorder.session import Session


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
