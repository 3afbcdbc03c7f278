"""Letting ``torch.utils.swap_tensors`` through: it refuses tensors that anybody refers to weakly.

Modules swap their parameters for converted ones where these are of a subclass, or where
``torch.__future__.set_swap_module_params_on_conversion`` asks for it. Just before PyTorch looks
for weak references ours are given up; the tensors are met anew, with what they hold then.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch.utils

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder


@contextmanager
def observe_swaps(recorder: Recorder) -> Iterator[None]:
    """Give up our weak references to a tensor that is swapped while the context is open."""
    original = vars(torch.utils).get("weakref")
    if original is not weakref:
        yield
        return

    def references(tensor: Any) -> list[Any]:
        recorder.guarded("swaps", _let_go, recorder, tensor)
        return weakref.getweakrefs(tensor)

    ours = SimpleNamespace(**{**vars(weakref), "getweakrefs": references})
    vars(torch.utils)["weakref"] = ours
    try:
        yield
    finally:
        if vars(torch.utils).get("weakref") is ours:
            vars(torch.utils)["weakref"] = original


def _let_go(recorder: Recorder, tensor: torch.Tensor) -> None:
    for table in (recorder.leaves, recorder.newest, recorder.saves):
        if weakref.getweakrefs(tensor):
            table.let_go(tensor)
