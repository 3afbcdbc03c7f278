"""The tensors that the live graph keeps for backward, read at a stop without unpacking any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.breakpoints.objects_at_stop import LiveSave
from autogradviz.recorder.torch_internals.nodes import slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MAX_NODES: Final = 2_000
"""Nodes that are read at a stop: touching all nodes of a very deep graph could crash the process
when it is freed."""


def saves_of_node(
    node: Any, version_saved: Callable[[Any, torch.Tensor], int | None]
) -> Iterator[LiveSave]:
    """Yield the tensors that a node saved.

    Args:
        node: an autograd node.
        version_saved: returns the version of a tensor when the node saved it.
    """
    for attribute, label in slots_of(type(node)):
        try:
            raw = getattr(node, attribute)
        except RuntimeError:  # the graph was freed
            continue
        slots = raw if isinstance(raw, (tuple, list)) else (raw,)
        for index, slot in enumerate(slots):
            if slot is None:
                continue
            name = f"{label}[{index}]" if slots is raw else label
            value = slot.data
            if slot.unpack_hook is None and isinstance(value, torch.Tensor):
                yield LiveSave(
                    node.name(), name, value, version_saved(node, value), _version(value)
                )
            elif slot.unpack_hook is not None:
                yield LiveSave(node.name(), name, value, None, None)


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001 - has no public name


def nodes_below(roots: Iterable[Any], newest: int) -> Iterator[Any]:
    """Yield the nodes of a graph, at most ``MAX_NODES``.

    Args:
        roots: nodes.
        newest: a sequence number; the node that has it is under construction.
    """
    seen: set[Any] = set()
    waiting = list(roots)
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop()
        if node is None or node in seen or node._sequence_nr() == newest:  # noqa: SLF001
            continue
        seen.add(node)
        yield node
        waiting += [each for each, _ in node.next_functions]


def shares_memory(one: Any, others: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor has the storage of one of others."""
    address = storage_address(one)
    return address is not None and any(address == storage_address(each) for each in others)


def storage_address(tensor: Any) -> int | None:
    """Return the address of a tensor's storage in C++, None if it has none."""
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        address: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - has no public name
    except (RuntimeError, NotImplementedError):
        return None
    return address
