"""The shortest paths from what is alive by itself to a tensor or a node.

NOTE [ Owners of a graph ]
Python's garbage collector knows which objects refer to a tensor, but not what C++ owns: a node's
next nodes, its saved tensors, and the node of a tensor. ``GraphOwners`` reads these from all live
tensors. From the target, the search goes to its owners, level by level; each level is one call of
``gc.get_referrers``. Bookkeeping is in numbers and in one list, which the search leaves out, and
which is emptied at the end: nothing is kept alive.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.recorder.owners.python_owners import (
    Roots,
    has_type,
    label_of,
    referrers,
    type_name,
)
from autogradviz.recorder.torch_internals.graph_owners import (
    GraphOwners,
    accumulating_node,
    is_node,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_DICTIONARY: Final = re.compile(r" > (?:Ordered)?[dD]ict\['(\w+)'\]")
_REGISTRY: Final = re.compile(r"\.(?:_modules|_parameters|_buffers)\.")
_CYCLE: Final = "a reference cycle, until the garbage collector frees it"
_MOST_NODES: Final = 3  # in a row that are listed
# Two lists, and the argument of getrefcount; from PyTorch 2.13 on also the node in C++.
_OUR_REFERENCES: Final = 4 if torch.__version__ >= "2.13" else 3
_WIDEST: Final = 4_000  # objects of a level
_DEEPEST: Final = 60  # levels with owners in Python; each takes a search of the whole heap


class Step(NamedTuple):
    """One owner on a path."""

    type_name: str  # of the owner
    part: str  # the part of it that refers to the next object: "[3]", ".grad_fn"
    is_node: bool


class Path(NamedTuple):
    """The owners of an object, from one that is alive by itself."""

    root: str  # "global losses of module __main__"
    steps: tuple[Step, ...]  # from the root to the owner of the target

    @property
    def text(self) -> str:
        """The steps as text, ``list[2] > Tensor.grad_fn > 4 nodes > AccumulateGrad.variable``.

        A dictionary of attributes is part of its owner, and nodes in a row are counted.
        """
        shown: list[str] = []
        for is_link, group in groupby(self.steps, key=_links_nodes):
            steps = list(group)
            if is_link and len(steps) > _MOST_NODES:
                first, last = steps[0].type_name, steps[-1].type_name
                shown.append(f"{first} > {len(steps) - 2:,} nodes > {last}")
            else:
                shown += [f"{each.type_name}{each.part}" for each in steps]
        text = " > ".join(shown)
        # Attributes and registered modules, which a dictionary holds, read as in Python.
        return _REGISTRY.sub(".", _DICTIONARY.sub(r".\1", text))


def _links_nodes(step: Step) -> bool:
    return step.is_node and step.part.startswith(".next_functions")


class Search(NamedTuple):
    """The result of a search."""

    paths: tuple[Path, ...]
    is_complete: bool  # time was sufficient, and no graph was too deep


def find_owners(
    target: Any, *, seconds: float, most: int, graph: GraphOwners | None = None
) -> Search:
    """Return paths to an object, at most one for each root, the shortest first.

    Of a leaf, the owners of its ``AccumulateGrad`` come first, if a graph has one; those of the
    leaf itself follow. Variables that refer to the object itself come last.

    Args:
        target: a tensor or a node.
        seconds: the processor time after which the search stops.
        most: the number of paths.
        graph: the owners in C++ if they have been read, also of the target.
    """
    deadline = thread_time() + seconds
    search = _Search(target, deadline, most, graph)
    try:
        own = search.run()
    finally:
        search.clear()
    accumulating = accumulating_node(target)
    if accumulating is None:
        return own
    search = _Search(accumulating, deadline, most)
    last = Step(type_name(accumulating), ".variable", is_node=True)
    del accumulating
    try:
        found = search.run()
    finally:
        search.clear()
    through = [Path(each.root, (*each.steps, last)) for each in found.paths if each.steps]
    paths = (*through, *own.paths)[:most]
    return Search(paths, own.is_complete and found.is_complete)


class _Search:
    def __init__(
        self, target: Any, deadline: float, most: int, graph: GraphOwners | None = None
    ) -> None:
        self._deadline = deadline
        self._most = most
        self._objects: list[Any] = [target]
        self._places = {id(target): 0}
        self._owned = [0]  # by owner, what it owns
        self._labels = [""]
        self._paths: dict[str, Path] = {}
        self._cycle: Path | None = None
        self._roots = Roots()
        self._searches = 0  # of the heap
        self._graph = GraphOwners(target, deadline) if graph is None else graph

    def clear(self) -> None:
        """Forget all objects."""
        self._objects.clear()
        self._graph.clear()

    def run(self) -> Search:
        """Search until the time or the owners end, or enough roots are found."""
        level, is_complete = [0], self._graph.is_complete
        while level and self._searches < _DEEPEST:
            if sum(bool(p.steps) for p in self._paths.values()) >= self._most:
                break
            if thread_time() > self._deadline or len(level) > _WIDEST:
                is_complete = False
                break
            level = self._climb(level)
        found = [*self._paths.values(), *([self._cycle] if self._cycle is not None else [])]
        paths = sorted(found, key=lambda path: not path.steps)
        return Search(tuple(paths[: self._most]), is_complete)

    def _climb(self, level: list[int]) -> list[int]:
        """Return the new owners of some objects; add the paths of those that have a root."""
        for place in level:
            root = self._roots.of(self._objects[place])
            if root:
                self._add_path(root, place)
        found, owned_by_any = [], set[int]()
        for owner, owned, label in self._owners_of(level):
            place = self._places[id(owned)]
            owned_by_any.add(place)
            root = self._roots.of_owner(owner, label)
            if root:
                self._add_path(root, place)
            elif id(owner) == id(self._objects[0]):
                self._cycle = self._cycle or self._path(_CYCLE, place, label)
            elif id(owner) not in self._places:
                self._places[id(owner)] = len(self._objects)
                found.append(len(self._objects))
                self._objects.append(owner)
                self._owned.append(place)
                self._labels.append(label)
        for place in level:
            if place and place not in owned_by_any and self._is_dead_end(place):
                self._add_path("hooks of a node or tensor, in C++", place)
        return found

    def _owners_of(self, places: list[int]) -> Iterator[tuple[Any, Any, str]]:
        # First of all: what was yielded last is in a variable of the caller, which counts as one.
        values = [self._objects[place] for place in places if self._may_have_owners(place)]
        for place in places:
            value = self._objects[place]
            for owner, label in self._graph.of(value):
                yield owner, value, label
        if values:
            self._searches += 1
            skip = {id(self._objects), id(self._graph.held), id(values)}
            for owner, owned in referrers(values, skip):
                yield owner, owned, label_of(owner, owned)

    def _may_have_owners(self, place: int) -> bool:
        """Return whether Python objects may own an object: most nodes are only in our lists."""
        owned_by_us = sys.getrefcount(self._objects[place]) <= _OUR_REFERENCES
        return not (owned_by_us and is_node(self._objects[place]))

    def _is_dead_end(self, place: int) -> bool:
        """Return whether an object that nothing seems to own is a container of hooks."""
        value = self._objects[place]
        return has_type(value, dict) and all(type(key) is int for key in list(dict.keys(value)))

    def _add_path(self, root: str, place: int) -> None:
        if root not in self._paths:
            self._paths[root] = self._path(root, place)

    def _path(self, root: str, place: int, first: str = "") -> Path:
        """Return the path from a root to the target; ``first`` is the part of the target itself."""
        steps = []
        if first:
            target = self._objects[0]
            steps.append(Step(type_name(target), first, is_node(target)))
        while place:
            owner = self._objects[place]
            steps.append(Step(type_name(owner), self._labels[place], is_node(owner)))
            place = self._owned[place]
        return Path(root, tuple(steps))
