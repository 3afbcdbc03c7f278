"""Replace methods of ``torch.Tensor`` while a recording is open."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.recorder.torch_internals.patch_functions import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def patched_tensor_method(name: str, ours: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of ``torch.Tensor`` while the context is open."""
    original = getattr(torch.Tensor, name)
    method = _Method(original, functools.wraps(original)(ours))
    with patched(torch.Tensor, **{name: method}):
        yield


class _Method:
    """Our method on a tensor; the original when it is read from the class.

    ``__torch_function__`` receives the function that the class has, and programs look it up in
    tables that they filled before.
    """

    def __init__(self, original: Any, ours: Callable[..., Any]) -> None:
        self._original = original
        self._ours = ours

    def __get__(self, tensor: torch.Tensor | None, owner: Any = None) -> Any:
        return self._original if tensor is None else MethodType(self._ours, tensor)
