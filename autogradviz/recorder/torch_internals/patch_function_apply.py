"""Observe the calls of custom Functions.

Up to PyTorch 2.13, ``Function.apply`` is a Python method that calls the one of its base class,
which is found at each call, also if the program holds ``MyFunction.apply``. From 2.14 on it is a
method of C: where the program holds it, nothing in Python is called.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from torch._C._functorch import peek_interpreter_stack
from torch.autograd.function import Function

from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched
from autogradviz.recorder.torch_internals.private_api import SingleLevelFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call: TypeAlias = Callable[..., Any]
    Around: TypeAlias = Callable[[Any, Call, tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def patched_apply(around: Around) -> Iterator[None]:
    """Call a function in place of the ``apply`` of custom Functions while the context is open.

    Args:
        around: called with the Function, its ``apply`` and the arguments.
    """

    @skip_frame
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return around(cls, super(SingleLevelFunction, cls).apply, args, kwargs)

    in_c: Any = vars(Function).get("apply")

    @skip_frame
    def apply_in_c(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call = in_c.__get__(None, cls)
        if peek_interpreter_stack() is not None:  # it calls the ``apply`` of another class
            return call(*args, **kwargs)
        return around(cls, call, *_bound(cls, args, kwargs))

    with ExitStack() as installed:
        installed.enter_context(patched(SingleLevelFunction, apply=classmethod(apply)))
        if in_c is not None and not isinstance(in_c, classmethod):
            installed.enter_context(patched(Function, apply=classmethod(apply_in_c)))
        yield


def _bound(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with defaults, as a Function with ``setup_context`` gets them."""
    if cls.setup_context is SingleLevelFunction.setup_context:
        return args, kwargs
    try:
        found = inspect.signature(cls.forward).bind(*args, **kwargs)
    except TypeError:  # which PyTorch will raise
        return args, kwargs
    found.apply_defaults()
    return found.args, found.kwargs
