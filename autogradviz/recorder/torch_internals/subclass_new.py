"""Tensor subclasses made by calling the class, as in ``MyTensor([1.0, 2.0])``.

PyTorch makes a plain tensor first, then an object of the subclass for the same C++ tensor. What a
dispatch mode has returned has an object already, so PyTorch refuses: the mode steps aside.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import TracingContext

from autogradviz.recorder.torch_internals.dynamo import transparent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.ops.dispatch_mode import OpMode
    from autogradviz.recorder.recorder import Recorder


@contextmanager
def observe_construction(recorder: Recorder) -> Iterator[None]:
    """Step aside while a subclass is called, as long as the context is open."""
    if recorder.mode is None:
        yield
        return
    # The original is inherited from the C class: ours shadows it and is deleted again.
    setattr(torch.Tensor, "__new__", _New(torch.Tensor.__new__, recorder.mode))  # noqa: B010
    try:
        yield
    finally:
        del torch.Tensor.__new__


class _New:
    """``__new__`` of the subclasses; of ``torch.Tensor`` itself, and for compilers, the original.

    Others remember what they find there: Dynamo, when it is imported, for as long as it lives.
    """

    def __init__(self, original: Callable[..., Any], mode: OpMode) -> None:
        self._original = original
        self._mode = mode

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]:
        if owner is torch.Tensor or TracingContext.try_get() is not None:
            return self._original
        return self._call

    @transparent
    def _call(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        suspended = self._mode.suspend()
        try:
            return self._original(cls, *args, **kwargs)
        finally:
            if suspended:
                self._mode.resume()
