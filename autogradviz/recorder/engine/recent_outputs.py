"""The newest results, weakly: where the graph is looked for when no backward has shown it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final

import torch

REMEMBERED: Final = 64
_Tensor: Final = torch.Tensor
_reference: Final = weakref.ref


class RecentOutputs:
    """Remembers the last results of operators and modules without keeping them."""

    def __init__(self) -> None:
        self._recent: deque[weakref.ref[torch.Tensor]] = deque(maxlen=REMEMBERED)

    def remember(self, result: Any) -> None:
        """Keep a weak reference to a result: its graph may still be there at the end."""
        first = result
        if type(first) is not _Tensor and isinstance(result, (tuple, list)) and result:
            first = result[0]
        if type(first) is _Tensor:
            self._recent.append(_reference(first))

    def let_go(self, tensor: torch.Tensor) -> None:
        """Forget a tensor."""
        kept = [ref for ref in self._recent if ref() is not tensor]
        self._recent.clear()
        self._recent.extend(kept)

    def nodes(self) -> list[Any]:
        """Return the nodes of those that are still alive, the newest first.

        The ``grad_fn`` of a view whose base was written runs view functions: those are left out.
        """
        alive = [tensor for ref in self._recent if (tensor := ref()) is not None]
        nodes = [
            tensor.grad_fn
            for tensor in reversed(alive)
            if tensor.requires_grad and not (tensor._is_view() and tensor._version)  # noqa: SLF001
        ]
        return [node for node in nodes if node is not None]
