"""Methods of tensors, watched while recording."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def watched_method(name: str, ours: Callable[..., Any]) -> Iterator[None]:
    """Put a method in another's place while the context is open."""
    original = getattr(torch.Tensor, name)
    method = _Method(original, functools.wraps(original)(ours))
    with patched(torch.Tensor, **{name: method}):
        yield


class _Method:
    """Ours for a tensor; for who reads it from the class, the original.

    ``__torch_function__`` is told what the class says, and people look that up in tables which
    they filled before.
    """

    def __init__(self, original: Any, ours: Callable[..., Any]) -> None:
        self._original = original
        self._ours = ours

    def __get__(self, tensor: torch.Tensor | None, owner: Any = None) -> Any:
        return self._original if tensor is None else MethodType(self._ours, tensor)
