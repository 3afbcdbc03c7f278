"""The saved tensor of a node whose content is not that of the forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from autogradviz.recorder.torch_internals.saved_slots_of_node import slots_of
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator


def changed_slot(node: Any, again: Any) -> str:
    """Return the name of the first saved tensor that differs from that of a new node, else ""."""
    for name, _ in slots_of(type(node)):
        for now, then in zip(_saved(node, name), _saved(again, name), strict=False):
            if why_unreadable(now) or why_unreadable(then):
                continue
            if now.shape != then.shape or not torch.equal(now.detach(), then.detach()):
                return name.removeprefix("_raw_saved_")
    return ""


def has_hooks(node: Any) -> bool:
    """Return whether saved-tensor hooks packed a saved tensor of a node."""
    for name, _ in slots_of(type(node)):
        slot = getattr(node, name)
        for each in slot if isinstance(slot, (list, tuple)) else [slot]:
            if getattr(each, "unpack_hook", None) is not None:
                return True
    return False


def _saved(node: Any, name: str) -> Iterator[torch.Tensor]:
    """Yield the tensors in a slot; those that hooks packed are not unpacked."""
    try:
        slot = getattr(node, name)
    except RuntimeError:  # the graph was freed
        return
    for each in slot if isinstance(slot, (list, tuple)) else [slot]:
        data = getattr(each, "data", None)
        if getattr(each, "unpack_hook", None) is None and isinstance(data, torch.Tensor):
            yield data
