"""Where hooks are registered: PyTorch's functions for it, wrapped while recording."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.autograd.graph
import torch.nn.modules.module as torch_module
from torch.autograd.function import Function
from torch.utils.hooks import BackwardHook, RemovableHandle

from autogradviz.recorder.engine.hooks import NodeHooks, RecorderHook, TracingHook
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched
from autogradviz.recorder.torch_internals.patch_method import watched_method
from autogradviz.recorder.torch_internals.private_api import holders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.events import HookKind
    from autogradviz.recorder.recorder import Recorder

_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001
_MULTI: Final = "register_multi_grad_hook"


@contextmanager
def observe_hooks(recorder: Recorder) -> Iterator[None]:
    """Record hooks that are registered, and when they run, while the context is open."""
    with ExitStack() as installed:
        installed.callback(recorder.hooks.end, last=True)
        installed.enter_context(_observe_tensor(recorder, "register_hook", "tensor"))
        name = "register_post_accumulate_grad_hook"
        installed.enter_context(_observe_tensor(recorder, name, "post_accumulate_grad"))
        installed.enter_context(_observe_retain_grad(recorder))
        installed.enter_context(_observe_nodes(recorder))
        installed.enter_context(_observe_multi(recorder))
        for name, kind in _MODULE_KINDS.items():
            installed.enter_context(_observe_module(recorder, name, kind))
        installed.enter_context(_observe_module_calls(recorder))
        yield


@contextmanager
def _observe_tensor(recorder: Recorder, name: str, kind: HookKind) -> Iterator[None]:
    original = getattr(torch.Tensor, name)
    slot = "_backward_hooks" if kind == "tensor" else "_post_accumulate_grad_hooks"

    def known(tensor: torch.Tensor, handle: Any) -> None:
        if isinstance(handle, RemovableHandle):
            with _NoFunctions():
                tensor_id = recorder.tensors.number(tensor)
                recorder.hooks.watch(getattr(tensor, slot), kind, tensor_id, handle.id)

    @transparent
    def register(self: torch.Tensor, hook: Any) -> Any:
        handle = original(self, hook)
        recorder.guarded("hooks", known, self, handle)
        return handle

    with watched_method(name, register):
        yield


@contextmanager
def _observe_retain_grad(recorder: Recorder) -> Iterator[None]:
    original = torch.Tensor.retain_grad

    def known(tensor: torch.Tensor) -> None:
        with _NoFunctions():
            if tensor.retains_grad:
                tensor_id = recorder.tensors.number(tensor)
                recorder.hooks.new("retain_grad", original, tensor_id=tensor_id)

    @transparent
    def retain_grad(self: torch.Tensor) -> Any:
        with _NoFunctions():
            before = self.retains_grad
        result = original(self)
        if not before:
            recorder.guarded("hooks", known, self)
        return result

    with watched_method("retain_grad", retain_grad):
        yield


@contextmanager
def _observe_nodes(recorder: Recorder) -> Iterator[None]:
    """Nodes are C++; all of them store their hooks through this one Python function."""
    original = Function._register_hook  # noqa: SLF001

    @transparent
    def register(backward_hooks: Any, hook: Any) -> Any:
        if isinstance(hook, RecorderHook):
            # In place of a handle the hooks themselves: a handle of PyTorch's, which can be
            # pickled and finds its dict weakly, costs more than the hook.
            hooks = NodeHooks() if backward_hooks is None else backward_hooks
            hooks[hook] = hook
            return hooks, hooks
        result = original(backward_hooks, hook)
        recorder.guarded("hooks", recorder.hooks.watch, result[0], "node", None, result[1].id)
        return result

    # PyTorch looks for it on Function by a new string each time, and so along all bases: put on
    # Function itself, it is found at once.
    with patched(Function, _register_hook=staticmethod(register)):
        yield


@contextmanager
def _observe_multi(recorder: Recorder) -> Iterator[None]:
    original = torch.autograd.graph.register_multi_grad_hook

    @transparent
    def register(tensors: Any, fn: Any, *, mode: Any = "all") -> Any:
        hook_id = recorder.guarded("hooks", recorder.hooks.new, "multi_grad", fn)
        if hook_id is None:
            return original(tensors, fn, mode=mode)
        watched = TracingHook(recorder.gate, fn, hook_id, "multi_grad")

        @functools.wraps(fn)
        @transparent
        def call(gradients: Any) -> Any:
            return watched(gradients)

        return original(tensors, call, mode=mode)

    register = functools.wraps(original)(register)
    # Others hold the same function under its name.
    modules = holders(_MULTI, original)
    for module in modules:
        setattr(module, _MULTI, register)
    try:
        yield
    finally:
        for module in modules:
            if vars(module).get(_MULTI) is register:
                setattr(module, _MULTI, original)


_MODULE_KINDS: Final[dict[str, HookKind]] = {
    "register_full_backward_pre_hook": "module_backward_pre",
    "register_full_backward_hook": "module_backward",
}


@contextmanager
def _observe_module(recorder: Recorder, name: str, kind: HookKind) -> Iterator[None]:
    original = getattr(torch.nn.Module, name)

    def known(module: torch.nn.Module, hook: Any, handle: Any) -> None:
        hook_id = recorder.hooks.new(kind, hook, module_id=recorder.modules.find(module))
        recorder.hooks.number(handle, hook_id)

    @transparent
    def register(self: torch.nn.Module, hook: Any, *args: Any, **kwargs: Any) -> Any:
        handle = original(self, hook, *args, **kwargs)
        recorder.guarded("hooks", known, self, hook, handle)
        return handle

    with patched(torch.nn.Module, **{name: functools.wraps(original)(register)}):
        yield


@contextmanager
def _observe_module_calls(recorder: Recorder) -> Iterator[None]:
    original = BackwardHook.__init__

    def watched(module: Any, hooks: Any, pre_hooks: Any) -> tuple[Any, Any]:
        table = recorder.hooks
        known = (module._backward_hooks, torch_module._global_backward_hooks)  # noqa: SLF001
        known_pre = (
            module._backward_pre_hooks,  # noqa: SLF001
            torch_module._global_backward_pre_hooks,  # noqa: SLF001
        )
        return (
            table.watched_list(module, "module_backward", hooks, known),
            table.watched_list(module, "module_backward_pre", pre_hooks, known_pre),
        )

    @transparent
    def begin(self: Any, module: Any, user_hooks: Any, user_pre_hooks: Any) -> None:
        pair = recorder.guarded("hooks", watched, module, user_hooks, user_pre_hooks)
        original(self, module, *(pair or (user_hooks, user_pre_hooks)))

    with patched(BackwardHook, __init__=begin):
        yield
