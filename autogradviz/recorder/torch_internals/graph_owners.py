"""The objects that nodes and tensors own in C++, where Python's garbage collector does not look.

A tensor owns its ``grad_fn``; a node owns the next nodes and the tensors that it saved; an
``AccumulateGrad`` owns its leaf, and the reducer of ``DistributedDataParallel`` those nodes.

NOTE [ Hooks of a node ]
A node has its hooks in dictionaries, of which only C++ knows. To register one more, it passes the
dictionary to a function in Python: if that raises, nothing is registered, and the dictionary known.

NOTE [ Deep graphs ]
Reading a node creates its Python object, which stays with the node. A chain of 50,000 such nodes
overflows the C stack when it is freed. So graphs are read from the oldest root to the newest, each
at most ``DEPTH`` nodes below it, and no more once one is higher than that. A chain of read nodes is
then at most twice as long.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from contextlib import contextmanager, suppress
from operator import methodcaller
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.torch_internals.nodes import slots_of
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction, current
from autogradviz.support.live_objects import live_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Base: Any = torch._C.TensorBase  # its attributes are read through their descriptors
_GRAD_FN: Final[Any] = _Base.grad_fn
_GRAD: Final[Any] = _Base._grad
_VIEWED: Final[Any] = _Base._base
_VERSION: Final[Any] = _Base._version
_PARALLEL: Final = "torch.nn.parallel.distributed"
_OFTEN: Final = 64  # nodes between looks at the clock
DEPTH: Final = 7_500
"""Nodes in a row that are read below a root; see NOTE [ Deep graphs ]."""


def is_node(value: Any) -> bool:
    """Return whether an object is a node of a graph."""
    return issubclass(type(value), torch.autograd.graph.Node)  # isinstance asks value.__class__


def is_tensor_or_node(value: Any) -> bool:
    """Return whether an object is a tensor or a node."""
    return issubclass(type(value), torch.Tensor) or is_node(value)


def node_of(tensor: Any) -> Any:
    """Return the node of a tensor, None if it has none or reading it would run code."""
    if _Base._is_view(tensor) and _VERSION.__get__(tensor):
        return None
    return _GRAD_FN.__get__(tensor)


def gradient_of(tensor: Any) -> Any:
    """Return the gradient of a leaf, None of any other tensor: PyTorch would warn."""
    is_leaf = node_of(tensor) is None and not _Base._is_view(tensor)
    return _GRAD.__get__(tensor) if is_leaf else None


class GraphOwners:
    """The owners in C++ of all nodes and tensors that live tensors lead to."""

    def __init__(self, target: Any, deadline: float) -> None:
        """Read what live tensors and a target lead to, until a deadline."""
        self.held: list[Any] = []
        """The objects that are owned or own; the only container of them."""
        self.is_complete = True
        self._heights: dict[int, int] = {}  # by node id, of the longest chain read below it
        self._places: dict[int, int] = {}
        self._owners: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._deadline = deadline
        self._has_hooks = False
        with DisableTorchFunction():
            self._read(target)

    def of(self, value: Any) -> Iterator[tuple[Any, str]]:
        """Yield the owners in C++ of a tensor or node, and the attribute by which each owns it."""
        for place, label in self._owners.get(id(value), ()):
            yield self.held[place], label

    def read_hooks(self) -> None:
        """Read the dictionaries of hooks of all nodes; see NOTE [ Hooks of a node ]."""
        if self._has_hooks:
            return
        self._has_hooks = True
        nodes = [(place, each) for place, each in enumerate(self.held) if is_node(each)]
        with _hooks_of_nodes() as hooks_of:
            for place, node in nodes:
                for hooks in hooks_of(node):
                    self._own(place, hooks, " (hooks)")

    def oldest_node(self, first: int, end: int) -> Any:
        """Return the node with the smallest sequence number in a range, None if there is none."""
        oldest, oldest_number = None, end
        for value in self.held:
            if is_node(value) and first <= (number := value._sequence_nr()) < oldest_number:
                oldest, oldest_number = value, number
        return oldest

    def clear(self) -> None:
        """Forget all objects."""
        self.held.clear()
        self._heights.clear()
        self._places.clear()
        self._owners.clear()

    def _add(self, value: Any) -> int:
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self.held)
            self.held.append(value)
        return place

    def _own(self, owner: int, owned: Any, label: str) -> bool:
        """Note an owner; return whether the owned object is new."""
        is_new = id(owned) not in self._places
        self._add(owned)
        self._owners[id(owned)].append((owner, label))
        return is_new

    def _read(self, target: Any) -> None:
        for tensor in live_tensors():
            self._add(tensor)
        roots = [target] if is_node(target) else []
        for place in range(len(self.held)):
            roots += self._read_tensor(place)
        roots.sort(key=methodcaller("_sequence_nr"))
        for root in roots:
            self._read_graph(root)
            if not self.is_complete:
                return
        self._read_reducers(target)

    def _read_graph(self, root: Any) -> None:
        """Read the nodes below a root, depth first; see NOTE [ Deep graphs ]."""
        if id(root) in self._heights:
            return
        path = [self._enter(root)]
        while path and self.is_complete:
            node, following = path[-1]
            child = next(following, None)
            if child is None:
                path.pop()
                if path:
                    self._set_above(path[-1][0], node)
            elif id(child) in self._heights:
                self._set_above(node, child)
            else:
                self.is_complete = len(path) < DEPTH and not self._is_late()
                path.append(self._enter(child))
        self.is_complete &= self._heights[id(root)] <= DEPTH

    def _enter(self, node: Any) -> tuple[Any, Iterator[Any]]:
        """Read a node; return it with the nodes below it."""
        self._heights[id(node)] = 1
        return node, iter(self._read_node(node))

    def _set_above(self, node: Any, child: Any) -> None:
        self._heights[id(node)] = max(self._heights[id(node)], self._heights[id(child)] + 1)

    def _is_late(self) -> bool:
        return len(self._heights) % _OFTEN == 0 and thread_time() > self._deadline

    def _read_tensor(self, place: int) -> list[Any]:
        """Note what a tensor owns; return its node, if it has one."""
        tensor = self.held[place]
        node = node_of(tensor)
        base = _VIEWED.__get__(tensor)
        for label, value in (("._base", base), (".grad", gradient_of(tensor))):
            if value is not None:
                self._own(place, value, label)
        if node is None:
            return []
        self._own(place, node, ".grad_fn")
        return [node]

    def _read_node(self, node: Any) -> list[Any]:
        """Note what a node owns; return the nodes among it, and those of tensors that it saved."""
        place, found = self._add(node), []
        for number, (target, _) in enumerate(node.next_functions):
            if target is not None:
                self._own(place, target, f".next_functions[{number}]")
                found.append(target)
        variable = _leaf_of(node)
        if variable is not None:
            self._own(place, variable, ".variable")
        for name, label in slots_of(type(node)):
            for value in _saved(node, name):
                is_new = self._own(place, value, f" (saved {label})")
                if not issubclass(type(value), torch.Tensor):
                    continue  # of hooks
                if is_new:
                    self._read_tensor(self._add(value))
                below = node_of(value)
                if below is not None:
                    found.append(below)
        return found

    def _read_reducers(self, target: Any) -> None:
        """Note the reducers of ``DistributedDataParallel`` that own the node of a leaf."""
        module = sys.modules.get(_PARALLEL)
        leaf = _leaf_of(target) if is_node(target) else target
        if module is None or leaf is None:
            return
        for wrapper in live_objects([module.DistributedDataParallel]):
            if any(each is leaf for each in vars(wrapper).get("_module_parameters", ())):
                self._own(self._add(wrapper), target, ".reducer (C++)")


def accumulating_node(leaf: Any) -> Any:
    """Return the node that accumulates the gradient of a leaf, None for any other tensor or node.

    PyTorch returns the live one; if there is none, a new one, which nothing else owns.
    """
    if is_node(leaf) or node_of(leaf) is not None or not _Base.requires_grad.__get__(leaf):
        return None
    with DisableTorchFunction():
        return torch.autograd.graph.get_gradient_edge(leaf).node


def _leaf_of(node: Any) -> Any:
    """Return the leaf of an ``AccumulateGrad``, None for any other node."""
    return node.variable if type(node).__name__ == "AccumulateGrad" else None


def _saved(node: Any, name: str) -> list[Any]:
    """Return the tensors in a slot of a node, the objects packed into it, and the unpack hooks."""
    try:
        raw = getattr(node, name)
    except RuntimeError:  # the graph was freed
        return []
    slots = raw if isinstance(raw, (tuple, list)) else (raw,)
    slots = [each for each in slots if each is not None]
    found = [value for each in slots for value in (each.data, *_unwrapped(each.unpack_hook))]
    return [each for each in found if issubclass(type(each), torch.Tensor) or gc.is_tracked(each)]


def _unwrapped(hook: Any) -> list[Any]:
    """Return a hook, or what one of the recorder's own refers to: the program's."""
    is_own = type(hook).__module__.startswith("autogradviz.")
    return gc.get_referents(hook) if is_own else [hook]


class _NotRegistered(Exception):  # noqa: N818 - it is caught here
    """Raised instead of registering a hook; ``hooks`` is the dictionary of the node."""

    def __init__(self, hooks: Any) -> None:
        super().__init__()
        self.hooks = hooks


class _NoHook:
    """Stands for a hook that is not registered."""

    __slots__ = ()


@contextmanager
def _hooks_of_nodes() -> Iterator[Callable[[Any], list[Any]]]:
    """Provide a function that returns the dictionaries of hooks of a node."""
    original = current("autograd.function.Function._register_hook")
    no_hook = _NoHook()

    def register(hooks: Any, hook: Any) -> Any:
        if hook is no_hook:
            raise _NotRegistered(hooks)
        return original(hooks, hook)  # on another thread

    def hooks_of(node: Any) -> list[Any]:
        found = []
        for name in ("register_hook", "register_prehook"):
            with suppress(AttributeError):  # not every node has both
                try:
                    getattr(node, name)(no_hook)
                except _NotRegistered as stopped:
                    found.append(stopped.hooks)
        return [each for each in found if each]

    with patched(torch.autograd.function.Function, _register_hook=staticmethod(register)):
        yield hooks_of


def live_tensors() -> list[Any]:
    """Return the tensors that Python objects hold."""
    kinds, waiting = [], [torch.Tensor]
    while waiting:
        kind = waiting.pop()
        kinds.append(kind)
        waiting += type.__subclasses__(kind)
    return live_objects(kinds)
