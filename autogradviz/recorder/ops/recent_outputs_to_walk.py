"""The most recent results, weakly referenced: the way to graphs that no backward entered."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final

import torch

from autogradviz.recorder.torch_internals.read_grad_fn import safe_grad_fn

REMEMBERED: Final = 64
_Tensor: Final = torch.Tensor
_reference: Final = weakref.ref


class RecentOutputs:
    """Remembers the last results of operators and modules without keeping them."""

    def __init__(self) -> None:
        self._recent: deque[weakref.ref[torch.Tensor]] = deque(maxlen=REMEMBERED)

    def remember(self, result: Any) -> None:
        """Add a weak reference to a result, whose graph may still exist at the end."""
        first = result
        if type(first) is not _Tensor and isinstance(result, (tuple, list)) and result:
            first = result[0]
        if type(first) is _Tensor:
            self._recent.append(_reference(first))

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""
        kept = [ref for ref in self._recent if ref() is not tensor]
        self._recent.clear()
        self._recent.extend(kept)

    def nodes(self) -> list[Any]:
        """Return the nodes of the results that are alive, the newest first."""
        alive = [tensor for ref in self._recent if (tensor := ref()) is not None]
        nodes = [safe_grad_fn(tensor) for tensor in reversed(alive) if tensor.requires_grad]
        return [node for node in nodes if node is not None]
