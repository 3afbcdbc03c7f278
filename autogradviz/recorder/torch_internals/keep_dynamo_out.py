"""Keep ``torch.compile`` from compiling the recorder.

Dynamo evaluates every Python frame that runs below compiled code, ours too when a graph break
runs ops eagerly: it would compile the recorder. PyTorch's own way to prevent that, a decorator,
imports all of Dynamo; marking the code object needs nothing.

Compiled autograd makes hooks part of the graph that it compiles, so no hooks are installed while it
is on.

Dynamo also compares ``nn.Module.__call__`` with the function that it remembers as the original, to
recognize an unpatched module. While our wrapper is installed, Dynamo must remember the wrapper.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torch._C._dynamo import eval_frame

from autogradviz.recorder.torch_internals.hide_frames_from_warnings import skip_in_stacklevel

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_SKIP: Final = eval_frame._FrameAction.SKIP
_DEFAULT: Final = eval_frame._FrameAction.DEFAULT
_SKIP_RECURSIVE: Final = eval_frame._FrameExecStrategy(_SKIP, _SKIP)
_SKIP_FRAME: Final = eval_frame._FrameExecStrategy(_SKIP, _DEFAULT)
_MODULES: Final = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
_REMEMBERED: Final = "unpatched_nn_module_call"
_COMPILED_AUTOGRAD: Final = "torch._dynamo.compiled_autograd"


def skip_dynamo_recursive(function: F) -> F:
    """Make Dynamo skip a function and everything that it calls."""
    eval_frame.set_code_exec_strategy(function.__code__, _SKIP_RECURSIVE)
    return function


def skip_frame(function: F) -> F:
    """Make Dynamo and warnings skip a wrapper's frame, but not the user's code that it calls."""
    skip_in_stacklevel(function)
    eval_frame.set_code_exec_strategy(function.__code__, _SKIP_FRAME)
    return function


def is_compiled_autograd_enabled() -> bool:
    """Return whether compiled autograd would compile a backward that starts now."""
    return getattr(sys.modules.get(_COMPILED_AUTOGRAD), "compiled_autograd_enabled", False)


def replace_remembered_call(old: Any, new: Any) -> None:
    """Make Dynamo, if it is loaded, remember ``new`` as the unpatched module call."""
    for name in _MODULES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, _REMEMBERED, None) is old:
            setattr(module, _REMEMBERED, new)
