"""Keep ``torch.compile`` from compiling the recorder, or remembering what it replaces."""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch._C._dynamo import eval_frame

from autogradviz.recorder.torch_internals.hide_frames_from_warnings import skip_in_stacklevel

if TYPE_CHECKING:
    from collections.abc import Callable


# Dynamo evaluates every Python frame that runs below compiled code, ours too when a graph break
# runs ops eagerly: it would compile the recorder. PyTorch's own way to prevent that, a decorator,
# imports all of Dynamo; marking the code object needs nothing.
#
# Compiled autograd makes hooks part of the graph that it compiles, so no hooks are installed while
# it is on.
#
# Dynamo also compares ``nn.Module.__call__`` with the function that it remembers as the original,
# to recognize an unpatched module. While our wrapper is installed, Dynamo must remember the
# wrapper.


F = TypeVar("F", bound="Callable[..., Any]")

_SKIP: Final = eval_frame._FrameAction.SKIP
_DEFAULT: Final = eval_frame._FrameAction.DEFAULT
_SKIP_RECURSIVE: Final = eval_frame._FrameExecStrategy(_SKIP, _SKIP)
_SKIP_FRAME: Final = eval_frame._FrameExecStrategy(_SKIP, _DEFAULT)
_MODULES: Final = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
_RULES: Final = "torch._dynamo.trace_rules"
_TENSORS: Final = "torch._dynamo.variables.tensor"
_REMEMBERED: Final = "unpatched_nn_module_call"
_RECORDER: Final = "autogradviz.recorder."
_COMPILED_AUTOGRAD: Final = "torch._dynamo.compiled_autograd"
_searched = 0
"""The number of loaded modules when functions of the recorder were last searched."""


_marked: Final[dict[int, CodeType]] = {}
"""The code objects that Dynamo skips, by address."""


def _mark(code: CodeType, strategy: Any) -> None:
    _marked[id(code)] = code
    eval_frame.set_code_exec_strategy(code, strategy)


def skip_dynamo_recursive(function: F) -> F:
    """Make Dynamo skip a function and everything that it calls."""
    _mark(function.__code__, _SKIP_RECURSIVE)
    return function


def skip_frame(function: F) -> F:
    """Make Dynamo and warnings skip a wrapper's frame, but not the user's code that it calls."""
    return skip_frame_in_dynamo(skip_in_stacklevel(function))


def skip_frame_in_dynamo(function: F) -> F:
    """Make Dynamo skip a wrapper's frame that stands in the place of the frame of a function."""
    _mark(function.__code__, _SKIP_FRAME)
    return function


def skip_recorder_frames() -> None:
    """Make Dynamo skip all loaded functions of the recorder, and what they call.

    Wrappers, which call the user's code, are marked already.
    """
    global _searched  # noqa: PLW0603
    if _searched == len(sys.modules):
        return
    _searched = len(sys.modules)
    for name, module in sys.modules.copy().items():
        if name.startswith(_RECORDER):
            for value in vars(module).values():
                if getattr(value, "__module__", None) == name:
                    _mark_all(value)


def _mark_all(value: Any) -> None:
    """Mark a function, the methods of a class, and the functions inside them."""
    if isinstance(value, type):
        for each in vars(value).values():
            _mark_all(getattr(each, "__func__", None) or getattr(each, "fget", None) or each)
    elif isinstance(value, FunctionType):
        # Decorators of the standard library return functions that share one code object.
        function: Any = inspect.unwrap(value)
        # The namespace of a class may have functions of others: an Enum has ``Enum.__new__``.
        if (function.__module__ or "").startswith(_RECORDER):
            _mark_nested(function.__code__)


def _mark_nested(code: CodeType) -> None:
    if id(code) not in _marked:
        _mark(code, _SKIP_RECURSIVE)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            _mark_nested(inner)


def is_compiled_autograd_enabled() -> bool:
    """Return whether compiled autograd would compile a backward that starts now."""
    return getattr(sys.modules.get(_COMPILED_AUTOGRAD), "compiled_autograd_enabled", False)


class RememberedCall:
    """Makes Dynamo, if it is loaded, remember our module call as the unpatched one."""

    def __init__(self, original: Any, ours: Any) -> None:
        self._original = original
        self._ours = ours

    def install(self) -> None:
        """Make Dynamo remember ours."""
        _replace_remembered(self._original, self._ours)

    def remove(self) -> None:
        """Make Dynamo remember the original."""
        _replace_remembered(self._ours, self._original)


def replace_in_rules(ours: Any, original: Any) -> None:
    """Give the original the rule that Dynamo, if it was imported meanwhile, has for our function.

    Dynamo looks up what it has rules for by name, once, when it is imported.
    """
    table = getattr(sys.modules.get(_RULES), "get_torch_obj_rule_map", None)
    if table is None or not table.cache_info().currsize or not isinstance(ours, FunctionType):
        return
    rules = table()
    if ours in rules:
        rules[original] = rules.pop(ours)


def forget_tensor_attribute(name: str, ours: Any) -> None:
    """Put PyTorch's attribute of tensors back into Dynamo's table, if it was imported meanwhile.

    Dynamo copies the attributes of tensors, once, when it is imported. It would take the one of a
    recording for another kind of attribute, and keep the recording alive.
    """
    table = getattr(sys.modules.get(_TENSORS), "all_tensor_attrs", None)
    if table is None or table.get(name) is not ours:
        return
    for owner in (torch.Tensor, torch._C.TensorBase):
        if name in vars(owner):
            table[name] = vars(owner)[name]
            return
    del table[name]


def _replace_remembered(old: Any, new: Any) -> None:
    for name in _MODULES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, _REMEMBERED, None) is old:
            setattr(module, _REMEMBERED, new)
