"""Let ``torch.utils.swap_tensors`` work: it refuses tensors that have weak references.

Modules swap their parameters for converted ones if these are of a subclass, or if
``torch.__future__.set_swap_module_params_on_conversion`` says so. The recorder's weak references
are released just before PyTorch counts them; it meets the tensors again with their new contents.

PyTorch swaps all parameters that are fake tensors, but its own mode for fake tensors refers weakly
to each of them, by the tensor that it stands for. In a plan, that is released too.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch.utils

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def released_before_swap(release: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Call a function with each tensor that is about to be swapped, while the context is open.

    Args:
        release: drops the caller's weak references to the tensor.
    """
    original = vars(torch.utils).get("weakref")
    if original is not weakref:
        yield
        return

    def references(tensor: Any) -> list[Any]:
        release(tensor)
        return weakref.getweakrefs(tensor)

    ours = SimpleNamespace(**{**vars(weakref), "getweakrefs": references})
    vars(torch.utils)["weakref"] = ours
    try:
        yield
    finally:
        if vars(torch.utils).get("weakref") is ours:
            vars(torch.utils)["weakref"] = original


def forget_fake_tensor(mode: Any, tensor: torch.Tensor) -> None:
    """Drop the weak reference of a mode for fake tensors to one of them."""
    known: weakref.WeakValueDictionary[Any, Any] = mode.fake_tensor_converter.tensor_memo
    for reference in weakref.getweakrefs(tensor):
        key = reference.key if isinstance(reference, weakref.KeyedRef) else None
        if key is not None and known.get(key) is tensor:
            del known[key]
