"""The modules and tensors in a module, read without a method that the program may override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def modules_inside(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the names and modules that ``named_modules`` of PyTorch yields, in its order."""
    seen: set[int] = set()
    waiting = [("", module)]
    while waiting:
        path, each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield path, each
        below = [
            (f"{path}.{label}" if path else label, child)
            for label, child in each._modules.items()  # noqa: SLF001 - as named_modules reads it
            if child is not None
        ]
        waiting += reversed(below)


def tensors_inside(
    module: torch.nn.Module, table: Literal["_parameters", "_buffers"]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the names and tensors that ``named_parameters`` or ``named_buffers`` yields."""
    seen: set[int] = set()
    for path, each in modules_inside(module):
        for name, tensor in getattr(each, table).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor
