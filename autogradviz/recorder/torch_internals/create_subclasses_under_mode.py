"""Let tensor subclasses be created by calling the class while a dispatch mode is active."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._guards import TracingContext

from autogradviz.recorder.torch_internals.keep_dynamo_out import forget_tensor_attribute, skip_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# PyTorch first creates a plain tensor, then an object of the subclass for the same C++ tensor. A
# tensor that a dispatch mode has returned has a Python object already, so PyTorch refuses. The mode
# is suspended during the call.


class _Mode(Protocol):
    def suspend(self) -> bool: ...

    def resume(self) -> None: ...


@contextmanager
def suspended_in_subclass_new(mode: _Mode | None) -> Iterator[None]:
    """Suspend a mode whenever a subclass is called, while the context is open."""
    if mode is None:
        yield
        return
    # The original is inherited from the C class: ours hides it and is deleted again.
    ours = _New(torch.Tensor.__new__, mode)
    setattr(torch.Tensor, "__new__", ours)  # noqa: B010
    try:
        yield
    finally:
        del torch.Tensor.__new__
        forget_tensor_attribute("__new__", ours)


class _New:
    """``__new__`` of the subclasses; for ``torch.Tensor`` itself and for compilers the original.

    Dynamo stores the ``__new__`` that it reads when it is imported, for as long as it lives.
    """

    def __init__(self, original: Callable[..., Any], mode: _Mode) -> None:
        self._original = original
        self._mode = mode

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]:
        if owner is torch.Tensor or TracingContext.try_get() is not None:
            return self._original
        return self._call

    @skip_frame
    def _call(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        suspended = self._mode.suspend()
        try:
            return self._original(cls, *args, **kwargs)
        finally:
            if suspended:
                self._mode.resume()
