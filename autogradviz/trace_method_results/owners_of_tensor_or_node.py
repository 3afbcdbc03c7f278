"""``autogradviz.owners()``: the owners that keep a tensor or a node alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autogradviz.errors import NotAGraphError


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPath:
    """The owners of a tensor or node, from one that is alive by itself.

    Attributes:
        root: "global losses of module __main__", "local loss of train(), line 31", "class Cache".
        path: the owners from there on, ``list[2] > Tensor.grad_fn > 4 nodes``.

    Example:
        >>> kept = [(torch.ones(3, requires_grad=True) * 2).sum()]
        >>> autogradviz.owners(kept[0].grad_fn).paths[0].path.endswith("list[0] > Tensor.grad_fn")
        True
    """

    root: str
    path: str

    def __str__(self) -> str:
        return f"{self.root}: {self.path}" if self.path else self.root


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """The owners of a tensor or node.

    Attributes:
        target: the type of the tensor or node.
        paths: one path for each root, the shortest first.
        is_complete: the search ended before its time was over, and no graph was too deep.

    Example:
        >>> loss = (torch.ones(3, requires_grad=True) * 2).sum()
        >>> autogradviz.owners(loss.grad_fn).target
        'SumBackward0'
    """

    target: str
    paths: tuple[OwnerPath, ...]
    is_complete: bool

    def __str__(self) -> str:
        lines = [f"{self.target} is kept alive by"]
        lines += [f"{number}. {path}" for number, path in enumerate(self.paths, 1)]
        if not self.paths:
            lines.append("nothing that was found")
        if not self.is_complete:
            lines.append("There may be others: time was over, or a graph is too deep to be read.")
        return "\n".join(lines)

    __repr__ = __str__


def owners(target: Any, *, seconds: float = 5.0, most: int = 5) -> Owners:
    """Return the owners that keep a tensor or a node alive, through Python and C++.

    Lists, attributes, closures, the variables of running functions in all threads, tracebacks of
    exceptions, hooks and ``ctx`` are searched, and what PyTorch owns in C++: the ``grad_fn`` of
    tensors, the next nodes and saved tensors of nodes, and the reducer of
    ``DistributedDataParallel``. No code of the program runs, and nothing is kept alive.

    Args:
        target: a tensor, or a node such as ``loss.grad_fn``.
        seconds: the processor time after which the search stops.
        most: how many paths are searched for.

    Raises:
        NotAGraphError: if ``target`` is neither a tensor nor a node.

    Example:
        >>> history = []
        >>> history.append((torch.ones(3, requires_grad=True) * 2).sum())
        >>> print(autogradviz.owners(history[0].grad_fn))
        SumBackward0 is kept alive by
        1. ...
    """
    from autogradviz.recorder.owners.find_owners import find_owners, type_name
    from autogradviz.recorder.torch_internals.graph_owners import is_tensor_or_node

    if not is_tensor_or_node(target):
        message = f"{type_name(target)} is neither a tensor nor a node: pass tensor.grad_fn"
        raise NotAGraphError(message)
    found = find_owners(target, seconds=seconds, most=most)
    paths = tuple(OwnerPath(root=each.root, path=each.text) for each in found.paths)
    return Owners(target=type_name(target), paths=paths, is_complete=found.is_complete)
