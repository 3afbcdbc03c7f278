"""Readers of the nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import torch

# --- read a tensor's node, and whether it is a leaf, only if that runs no code --------------------
#
# The ``grad_fn`` of a view whose base was written in place is created when it or ``is_leaf`` is
# read: PyTorch runs the view functions again, below which a dispatch mode can deadlock, or raises
# an error.


def safe_grad_fn(tensor: torch.Tensor) -> Any:
    """Return a tensor's node, None if it has none or if reading it would run view functions."""
    return None if tensor._is_view() and tensor._version else tensor.grad_fn


def name_of_node(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Return the name and sequence number of the node that made a tensor, None without one."""
    node = safe_grad_fn(tensor)
    return None if node is None else (node.name(), node._sequence_nr())


def is_trainable_leaf(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a leaf that requires a gradient, False if reading it runs code."""
    if not tensor.requires_grad or (tensor._is_view() and tensor._version):
        return False
    return tensor.is_leaf


# --- the tensors that a loss is divided by --------------------------------------------------------

_PASSED: Final = frozenset(
    {"MulBackward0", "DivBackward0", "NegBackward0", "AddBackward0", "ViewBackward0",
     "SqueezeBackward0"}
)  # fmt: skip
"""Nodes between a loss and a mean of it; of a sum, the first term counts."""
_MOST_NODES: Final = 6


def divisors_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors of one number that a loss was divided by, the last division first.

    The one of a cross entropy is the weight of all its targets.
    """
    found: list[torch.Tensor] = []
    node = safe_grad_fn(loss)
    for _ in range(_MOST_NODES):
        name = "" if node is None else node.name()
        try:
            if name.startswith("NllLoss"):
                found.append(node._raw_saved_total_weight.data)
            elif name == "DivBackward0" and node.next_functions[1][0] is None:
                found.append(node._raw_saved_other.data)
        except RuntimeError:  # an earlier backward freed the slot
            break
        if name not in _PASSED:
            break
        node = next((each for each, _ in node.next_functions if each is not None), None)
    return [each for each in found if isinstance(each, torch.Tensor) and each.dim() == 0]


# --- where the derivative of an op is not finite --------------------------------------------------
#
# Whatever the incoming gradient of such an entry is, also 0, the gradient is NaN or infinite.


_Test: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def _at_most(least: float) -> _Test:
    return lambda given: given <= least


_ZERO: Final[_Test] = lambda given: given == 0  # noqa: E731
_BEYOND_1: Final[_Test] = lambda given: given.abs() >= 1  # noqa: E731
_SINGULAR: Final[dict[str, tuple[tuple[str, _Test], ...]]] = {
    "SqrtBackward0": (("result", _ZERO),),
    "LogBackward0": (("self", _at_most(0)),),
    "Log2Backward0": (("self", _at_most(0)),),
    "Log10Backward0": (("self", _at_most(0)),),
    "Log1PBackward0": (("self", _at_most(-1)),),
    "DivBackward0": (("other", _ZERO),),
    "ReciprocalBackward0": (("result", torch.isinf),),
    "RsqrtBackward0": (("result", lambda given: torch.isinf(given * given * given)),),
    "ExpBackward0": (("result", torch.isinf),),
    "Expm1Backward0": (("result", torch.isinf),),
    "AcosBackward0": (("self", _BEYOND_1),),
    "AsinBackward0": (("self", _BEYOND_1),),
    "AtanhBackward0": (("self", _BEYOND_1),),
    "SoftmaxBackward0": (("result", torch.isnan),),
    "LogSoftmaxBackward0": (("result", torch.isnan),),
    "LinalgEighBackward0": (("eigenvalues", lambda given: given.diff(dim=-1) == 0),),
    "LinalgSvdBackward0": (("S", lambda given: given.diff(dim=-1) == 0),),
    "CtcLossBackward0": (("result0", torch.isinf),),
}
"""By node: slots, and the test for entries at which the derivative is not finite."""


def singular_slots(node: Any) -> tuple[tuple[str, _Test], ...]:
    """Return the slots of a node that tell where the derivative of its op is not finite."""
    name = type(node).__name__
    if name == "PowBackward0":
        exponent = node._saved_exponent
        if not isinstance(exponent, float) or (exponent.is_integer() and exponent >= 0):
            return ()
        if exponent.is_integer():
            return (("self", _ZERO),)
        return (("self", _at_most(0) if exponent < 1 else lambda given: given < 0),)
    return _SINGULAR.get(name, ())


def walk_nodes(roots: Iterable[torch.Tensor], most: int) -> tuple[list[Any], bool]:
    """Return the nodes of the graph of tensors, at most so many, and whether these are all.

    Each has its Python object afterwards: see NOTE [ Touching a node ].
    """
    waiting = [node for node in map(safe_grad_fn, roots) if node is not None]
    seen = set(waiting)
    found = []
    while waiting and len(seen) <= most:
        node = waiting.pop()
        found.append(node)
        for target, _ in node.next_functions:
            if target is not None and target not in seen:
                seen.add(target)
                waiting.append(target)
    return found, not waiting


# --- the Python function that computes the gradient of a node -------------------------------------


def backward_of(node: Any) -> Any:
    """Return the backward of a custom Function or ``register_autograd``; None for other nodes."""
    cls = getattr(type(node), "_forward_cls", None)
    if cls is None:
        return None
    if "backward" not in vars(cls) and "vjp" in vars(cls):
        return cls.vjp
    return _registered(cls.backward, 3) or cls.backward


def _registered(function: Any, depth: int) -> Any:
    """Return the backward given to ``register_autograd``, from the closure that holds it."""
    if not getattr(function, "__module__", "").startswith("torch._library"):
        return None
    for cell in getattr(function, "__closure__", None) or ():
        content = cell.cell_contents
        found = getattr(content, "_backward_fn", None)
        if found is None and depth and callable(content):
            found = _registered(content, depth - 1)
        if found is not None:
            return found
    return None


# --- the slots in which nodes keep saved tensors --------------------------------------------------
#
# ``node._saved_x`` unpacks: it runs hooks, and on a checkpointed region the forward.
# ``node._raw_saved_x`` is the slot itself; reading its ``data`` and ``unpack_hook`` runs nothing.


_RAW: Final = "_raw_saved_"

Slots: TypeAlias = tuple[tuple[str, str], ...]
"""The slots of a type of nodes: attribute and label."""

_known: Final[WeakKeyDictionary[type, Slots]] = WeakKeyDictionary()


def slots_of(kind: type) -> Slots:
    """Return the slots of a type of nodes; looked up once a process."""
    slots = _known.get(kind)
    if slots is None:
        slots = _known[kind] = tuple(
            [(name, _label(name)) for name in dir(kind) if name.startswith(_RAW)]
        )
    return slots


def _label(attribute: str) -> str:
    """Return the name of a slot that users know."""
    label = attribute.removeprefix(_RAW)
    return "saved_tensors" if label == "tensors" else label  # of a custom Function
