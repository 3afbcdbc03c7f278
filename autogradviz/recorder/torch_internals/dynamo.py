"""Staying out of ``torch.compile``'s sight.

Dynamo looks at every Python frame that runs below compiled code, ours too when a graph break
runs ops eagerly: it would compile the recorder. PyTorch's own way out, a wrapper around the
function, imports all of Dynamo; marking the code object needs nothing.

Compiled autograd makes hooks part of what it compiles, ours too: it is left alone.

Dynamo also compares ``nn.Module.__call__`` with the one that it remembers, to know a module that
nobody has touched. While ours stands there, ours is what it must remember.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torch._C._dynamo import eval_frame

from autogradviz.recorder.torch_internals.warning_frames import skip_in_stacklevel

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_SKIP: Final = eval_frame._FrameAction.SKIP  # noqa: SLF001
_DEFAULT: Final = eval_frame._FrameAction.DEFAULT  # noqa: SLF001
_HIDDEN: Final = eval_frame._FrameExecStrategy(_SKIP, _SKIP)  # noqa: SLF001
_TRANSPARENT: Final = eval_frame._FrameExecStrategy(_SKIP, _DEFAULT)  # noqa: SLF001
_MODULES: Final = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
_REMEMBERED: Final = "unpatched_nn_module_call"
_COMPILED_AUTOGRAD: Final = "torch._dynamo.compiled_autograd"


def hidden(function: F) -> F:
    """Hide a function from Dynamo, and all that it calls."""
    eval_frame.set_code_exec_strategy(function.__code__, _HIDDEN)
    return function


def transparent(function: F) -> F:
    """Hide a function from Dynamo and from warnings, but not the user's code that it calls."""
    skip_in_stacklevel(function)
    eval_frame.set_code_exec_strategy(function.__code__, _TRANSPARENT)
    return function


def compiles_backward() -> bool:
    """Return whether a backward that begins now is compiled, hooks and all."""
    return getattr(sys.modules.get(_COMPILED_AUTOGRAD), "compiled_autograd_enabled", False)


def swap_remembered_call(old: Any, new: Any) -> None:
    """Make Dynamo, where it is loaded, remember ``new`` as the untouched module call."""
    for name in _MODULES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, _REMEMBERED, None) is old:
            setattr(module, _REMEMBERED, new)
