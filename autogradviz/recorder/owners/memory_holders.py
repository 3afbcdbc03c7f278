"""The objects that keep memory alive: the dominators of storages in the graph of references.

NOTE [ Dominators ]
An object dominates a storage if every way from what is alive by itself (modules, classes, local
variables) to the storage passes through it: with the object, the storage goes. The dominators of
everything form a tree. Below its root stand the objects that nothing else frees; the search goes
down from each of them as long as one object below has nearly all of its bytes, so that the list is
named, not the trainer that has it. Immediate dominators are found as by Cooper, Harvey and Kennedy,
"A Simple, Fast Dominance Algorithm".

Objects that nothing alive leads to are in reference cycles, or only C++ has them. Each such cycle
gets an owner of its own. If a reference of the cycle is one in C++, Python's garbage collector does
not see that it is a cycle, and never frees it.

Parameters, their gradients and the state of optimizers are left out.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from itertools import chain
from time import thread_time
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import torch

from autogradviz.events import MemoryHolderFound, MemoryHoldersRead
from autogradviz.recorder.out_of_memory.live_memory import LiveTensors, gradients_of
from autogradviz.recorder.owners.find_owners import (
    OwnerSearch,
    Path,
    Step,
    file_of_module,
    file_of_type,
    instance_dict,
    label_of,
    module_of_type,
    type_name,
)
from autogradviz.recorder.torch_internals.graph_owners import (
    GraphOwners,
    is_node,
    is_tensor_or_node,
)
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.unreadable_tensors import inner_tensors
from autogradviz.support.directed_graph_algorithms import immediate_dominators, strong_components
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.out_of_memory.live_memory import LiveMemory
    from autogradviz.recorder.session import Session

_ROOT: Final = 0
_SHARE: Final = 0.8  # of an object's bytes: parts that have so much are named instead
_PART: Final = 0.1  # of an object's bytes: smaller parts are not named
_LEVELS: Final = 60  # searches of the heap
_WIDEST: Final = 20_000  # objects of a level
_UNSEEN: Final = "a cycle through C++, which Python's garbage collector does not see"
_CYCLE: Final = "a reference cycle, until Python's garbage collector frees it"
_NO_OWNER: Final = "no variable: C++, or a value of a running function"
_SECONDS: Final = 5.0
_LEAST: Final = 0.01  # of live bytes: less is no reason for a search
_MOST: Final = 16  # holders of a reading that are recorded
_OWN: Final = " of module autogradviz."
_REGISTRIES: Final = ("_parameters", "_buffers", "_modules")
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, deque)
_Place: TypeAlias = tuple[str, int]
"""A file and a line, 0 if it is unknown."""


class Holder(NamedTuple):
    """Objects alike that keep memory alive, with what they keep."""

    root: str
    path: str
    type_name: str
    entries: int | None  # of a container
    alike: int  # objects
    also: str  # another owner of it; "" if there is none
    place: _Place  # of the function or class that is the last on the path
    nbytes: int
    tensors: tuple[torch.Tensor, ...]  # one for each storage


class Holders(NamedTuple):
    """All objects that keep memory alive, those with most of it first. It holds the tensors."""

    found: tuple[Holder, ...]
    nbytes: int  # of all storages but those of parameters, gradients and optimizers
    is_complete: bool


def find_holders(*, seconds: float) -> Holders:
    """Return the objects that keep memory alive.

    Args:
        seconds: the processor time after which the search stops.
    """
    deadline = thread_time() + seconds
    with DisableTorchFunction(), collector_waiting():
        graph = GraphOwners(None, deadline)
        search = _References(graph, deadline)
        try:
            return search.run()
        finally:
            search.clear()


class _References(OwnerSearch):
    """The references that lead to storages, and the dominators of these."""

    def __init__(self, graph: GraphOwners, deadline: float) -> None:
        lasting = {id(each) for each in _lasting()}
        tensors = [
            each
            for each in graph.held
            if issubclass(type(each), torch.Tensor) and id(each) not in lasting
        ]
        super().__init__([None, *tensors], graph)  # the first place is the root's
        del self.places[id(None)]
        self._deadline = deadline
        self._kept = lasting
        self._climbed: set[int] = set()
        self._owners: dict[int, list[int]] = defaultdict(list)
        self._parts: dict[tuple[int, int], str] = {}  # of references in C++
        self._root_of: dict[int, str] = {}
        self._storages: dict[int, tuple[int, list[int]]] = {}  # bytes, and places of tensors
        self._above: list[int] = []  # immediate dominators
        self._weights: list[int] = []
        self._first: dict[int, int] = {}  # the owner on the shortest way from the root

    def run(self) -> Holders:
        """Search, and return the holders."""
        self._read_storages()
        is_complete = self._climb() and self.graph.is_complete
        if not is_complete:
            nbytes = sum(each for each, _ in self._storages.values())
            return Holders((), nbytes, is_complete=False)
        self._add_cycles()
        self._find_dominators()
        self._add_weights()
        found = sorted(self._holders(), key=lambda each: -each.nbytes)
        return Holders(tuple(found), self._weights[_ROOT], is_complete=True)

    # --- the graph ----------------------------------------------------------------------------

    def _read_storages(self) -> None:
        storages: dict[int, tuple[int, list[int]]] = {}
        lasting = set()
        for each in self._kept_tensors():
            for key, _ in _storages_of(each):
                lasting.add(key)
        for place in range(1, len(self.objects)):
            for key, nbytes in _storages_of(self.objects[place]):
                if nbytes and key not in lasting:
                    storages.setdefault(key, (nbytes, []))[1].append(place)
        for nbytes, places in storages.values():
            storage = self.add(_Storage())
            self._storages[storage] = nbytes, places
            self._owners[storage] = places

    def _kept_tensors(self) -> list[Any]:
        return [each for each in self.graph.held if id(each) in self._kept]

    def _climb(self) -> bool:
        """Follow all references upwards; return whether time was sufficient."""
        level = sorted({place for _, places in self._storages.values() for place in places})
        while level:
            if thread_time() > self._deadline or self.searches >= _LEVELS or len(level) > _WIDEST:
                return False
            self._climbed.update(level)
            for place in level:
                root = self.roots.of(self.objects[place])
                if root:
                    self._root_of[place] = root
            level = self._owners_above([each for each in level if not self._is_top(each)])
        return True

    def _owners_above(self, level: list[int]) -> list[int]:
        """Add the owners of some objects; return those that are new.

        What a variable has stands below the root, whatever else owns it, so its other owners need
        not be known; those of tensors are shown.
        """
        # Places, not objects: what holds an owner while the heap is searched would be one.
        found: dict[int, list[tuple[int, str | None]]] = defaultdict(list)
        for owner, owned, part in self.owners_of(level):
            place = self.places[id(owned)]
            root = self.roots.of_owner(owner, owned)
            if root:
                self._root_of.setdefault(place, root)
                continue
            above = self.places.get(id(owner))
            found[place].append((self.add(owner) if above is None else above, part))
        new: dict[int, None] = {}
        for place, owners in found.items():
            for above, part in owners if not self._is_top(place) else ():
                if above not in self._climbed:
                    new[above] = None
                if above != place and above not in self._owners[place]:
                    self._owners[place].append(above)
                    if part is not None:
                        self._parts[above, place] = part
        return list(new)

    def _is_top(self, place: int) -> bool:
        return place in self._root_of and not is_tensor_or_node(self.objects[place])

    def _add_cycles(self) -> None:
        """Add an owner of each cycle that no variable leads to."""
        reached = _reach(self._below(), self._root_of)
        lost = [place for place in range(1, len(self.objects)) if place not in reached]
        for members in strong_components(lost, self._owners):
            inside = set(members)
            if any(owner not in inside for place in members for owner in self._owners[place]):
                continue  # something lost leads to it
            top = members[0]
            if id(self.objects[top]) in self.of_recorder:
                continue
            text = _NO_OWNER
            if len(members) > 1:
                in_cpp = any(a in inside and b in inside for a, b in self._parts)
                text = _UNSEEN if in_cpp else _CYCLE
                top = self.add(_Cycle(members))
                for place in members:
                    self._owners[place].append(top)
            self._root_of[top] = text

    def _below(self) -> list[list[int]]:
        below: list[list[int]] = [[] for _ in self.objects]
        for place, owners in self._owners.items():
            for owner in owners:
                below[owner].append(place)
        return below

    # --- dominators ---------------------------------------------------------------------------

    def _find_dominators(self) -> None:
        below = self._below()
        below[_ROOT] = list(self._root_of)
        self._first = {}
        waiting = deque([_ROOT])
        while waiting:
            place = waiting.popleft()
            for each in below[place]:
                if each not in self._first:
                    self._first[each] = place
                    waiting.append(each)
        owners = {place: list(each) for place, each in self._owners.items()}
        for place in self._root_of:
            owners.setdefault(place, []).append(_ROOT)
        self._above = immediate_dominators(below, owners)

    def _add_weights(self) -> None:
        """Sum the bytes below each object, from the storages upwards.

        Nothing leads from the root to what only the recorder has.
        """
        self._weights = [0] * len(self.objects)
        for storage, (nbytes, _) in self._storages.items():
            place = storage if storage in self._first else _ROOT
            while place != _ROOT:
                self._weights[place] += nbytes
                place = self._above[place]
            self._weights[_ROOT] += nbytes if storage in self._first else 0

    # --- holders ------------------------------------------------------------------------------

    def _holders(self) -> Iterator[Holder]:
        """Yield the holders; those alike, as the cycles of several steps, are one."""
        children: dict[int, list[int]] = defaultdict(list)
        for place, above in enumerate(self._above):
            if place != _ROOT and self._weights[place]:
                children[above].append(place)
        alike: dict[tuple[str, str, str, _Place], list[Holder]] = defaultdict(list)
        for top in children[_ROOT]:
            for place in self._chosen(top, children):
                holder = self._holder(place, children)
                if _OWN in holder.root:
                    continue
                key = holder.root, _shape(holder.path), holder.type_name, holder.place
                alike[key].append(holder)
        for same in alike.values():
            first = max(same, key=lambda each: each.nbytes)
            yield first._replace(
                alike=len(same),
                nbytes=sum(each.nbytes for each in same),
                tensors=tuple(chain.from_iterable(each.tensors for each in same)),
            )

    def _chosen(self, top: int, children: dict[int, list[int]]) -> list[int]:
        """Return the objects to name instead of one that dominates them, or this itself."""
        weight, value = self._weights[top], self.objects[top]
        below = [each for each in children[top] if each not in self._storages]
        if type(value) is _Cycle or is_tensor_or_node(value):
            return [top]
        if not self._is_container(top):
            parts = [each for each in below if self._weights[each] > _PART * weight]
        else:
            parts = [
                each
                for each in below
                if self._weights[each] >= _SHARE * weight
                and not is_tensor_or_node(self.objects[each])
            ]
        if sum(map(self._weights.__getitem__, parts)) < _SHARE * weight:
            return [top]
        return [place for each in parts for place in self._chosen(each, children)]

    def _is_container(self, place: int) -> bool:
        """Return whether an object is a container, and no dictionary of an object's attributes."""
        value, above = self.objects[place], self._first[place]
        if type(value) not in _CONTAINERS:
            return False
        for owner in (self.objects[above], self.objects[self._first.get(above, _ROOT)]):
            attributes = None if owner is None else instance_dict(owner)
            if attributes is value:
                return False
            if attributes is not None and issubclass(type(owner), torch.nn.Module):
                return all(attributes.get(each) is not value for each in _REGISTRIES)
        return True

    def _holder(self, place: int, children: dict[int, list[int]]) -> Holder:
        below = [each for each in _below(place, children) if each in self._storages]
        named = self._first[place] if place in self._storages else place  # of several tensors
        value, entries, also = self.objects[named], None, ""
        if type(value) is _Cycle:
            root, kind = self._root_of[named], "cycle"
            path, where = self._around(value.members)
        else:
            root, path, where = self._way(named)
            where = self._function_below(named, children) or where
            kind = type_name(value)
            entries = len(value) if type(value) in _CONTAINERS else None
            others = [self._way(each)[0] for each in self._owners[place] if each in self._first]
            also = next((each for each in others if each != root), "")
        tensors = [self.objects[self._storages[each][1][0]] for each in below]
        nbytes = self._weights[place]
        return Holder(root, path, kind, entries, 1, also, where, nbytes, tuple(tensors))

    def _function_below(self, place: int, children: dict[int, list[int]]) -> _Place | None:
        """Return the place of the function that has most of what a container keeps."""
        most = max(children.get(place, ()), key=self._weights.__getitem__, default=None)
        if most is None or type(self.objects[most]) is not FunctionType:
            return None
        return _place_of(self.objects[most])

    # --- names --------------------------------------------------------------------------------

    def _way(self, place: int) -> tuple[str, str, _Place]:
        """Return root, path and place in the source of the shortest way to an object."""
        steps: list[Step] = []
        where: _Place = ("", 0)
        last = self.objects[place]
        at = place
        while True:
            where = where if where[0] else _place_of(self.objects[at])
            above = self._first[at]
            if above == _ROOT:
                break
            owner = self.objects[above]
            if type(owner) is not _Cycle:
                steps.append(self._step(above, at))
            at = above
        root = self._root_of[at]
        if not where[0]:
            filename, _ = self.roots.files.get(id(self.objects[at]), ("", 0))
            where = filename or file_of_module(root.rpartition(" of module ")[2]), 0
        text = Path(root, tuple(reversed(steps))).text
        shown = _shown(last)
        if type(self.objects[at]) is _Cycle:
            return root, text or shown, where
        return root, f"{text} > {shown}" if text else shown, where

    def _step(self, owner: int, owned: int) -> Step:
        value = self.objects[owner]
        part = self._parts.get((owner, owned))
        if part is None:
            part = label_of(value, self.objects[owned])
        return Step(type_name(value), part, is_node(value))

    def _around(self, members: list[int]) -> tuple[str, _Place]:
        """Return the way around a cycle, from an object of the program if it has one."""
        inside = set(members)
        below: dict[int, list[int]] = defaultdict(list)
        for place in members:
            for owner in self._owners[place]:
                if owner in inside:
                    below[owner].append(place)
        start = min(members, key=lambda place: _rank(self.objects[place]))
        came: dict[int, int] = {}
        waiting = deque([start])
        while waiting and start not in came:
            place = waiting.popleft()
            for each in below[place]:
                if each not in came:
                    came[each] = place
                    waiting.append(each)
        steps, at = [], start
        where = _place_of(self.objects[start])
        while True:
            above = came[at]
            steps.append(self._step(above, at))
            found = _place_of(self.objects[above])
            where = found if found[1] or not where[0] else where
            at = above
            if at == start:
                break
        shown = _shown(self.objects[start])
        return f"{Path('', tuple(reversed(steps))).text} > {shown}", where


class _Storage:
    """Stands for a storage among the objects."""

    __slots__ = ()


class _Cycle:
    """Stands for the owner of a cycle."""

    __slots__ = ("members",)

    def __init__(self, members: list[int]) -> None:
        self.members = members


def _lasting() -> Iterable[torch.Tensor]:
    live = LiveTensors()
    kinds = dict(live.by_kind)
    return chain(kinds["parameter"], kinds["optimizer state"], gradients_of(live.tensors))


def _storages_of(tensor: Any) -> list[tuple[int, int]]:
    """Return address and bytes of the storages of a tensor."""
    found = []
    for inner in inner_tensors(tensor):
        with suppress(RuntimeError, NotImplementedError):  # it has none: sparse, or of a device
            storage = inner.untyped_storage()
            found.append((storage._cdata, storage.nbytes()))  # noqa: SLF001 - has no public name
    return found


def _shown(value: Any) -> str:
    """Return the last object of a path as text: "list of 3"."""
    kind = type(value)
    if kind in _CONTAINERS:
        return f"{type_name(value)} of {len(value):,}"
    if kind is FunctionType:
        return f"function {value.__qualname__}"
    return type_name(value)


def _place_of(value: Any) -> _Place:
    """Return the place in the source of a function, or of the class of an object; else ("", 0)."""
    wrapped = value
    if type_name(value) == "_lru_cache_wrapper":
        wrapped = (instance_dict(value) or {}).get("__wrapped__")
    if type(wrapped) is FunctionType:
        return wrapped.__code__.co_filename, wrapped.__code__.co_firstlineno
    kind = getattr(type(value), "_forward_cls", type(value)) if is_node(value) else type(value)
    module = module_of_type(kind)
    if module.partition(".")[0] in {"torch", "builtins", "functools", "collections"}:
        return "", 0
    return file_of_type(kind), 0


def _rank(value: Any) -> tuple[int, int]:
    """Return the rank of an object as the name of a cycle: objects of the program first."""
    place = _place_of(value)
    return (0 if place[0] and not place[1] else 1 if place[1] else 2, 0)


def _shape(path: str) -> str:
    """Return a path without numbers: those of objects alike are equal."""
    return "".join("#" if each.isdigit() else each for each in path)


def _below(place: int, children: dict[int, list[int]]) -> Iterator[int]:
    waiting = [place]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += children.get(each, ())


def _reach(below: list[list[int]], starts: Collection[int]) -> set[int]:
    waiting, seen = list(starts), set(starts)
    while waiting:
        for each in below[waiting.pop()]:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen


class MemoryHolders:
    """Records the objects that keep memory alive.

    NOTE [ When holders are read ]
    A search costs as much as tens of small steps, so it must have a reason. Memory that a backward
    has left behind and that is still alive when the next one begins is kept by something; a healthy
    step has none but parameters, gradients and the state of optimizers. So the bytes of
    the others are counted before each backward, and holders are searched when these have grown.
    Only then, not at the end, are the outputs of all micro-batches of a step alive.
    """

    def __init__(self, session: Session, tensors: TensorIds, live: LiveMemory | None) -> None:
        """Prepare for a recording; ``live`` is None if it is without ``memory=True``."""
        self._session = session
        self._tensors = tensors
        self._live = live
        self._readings = 0
        self._left: frozenset[int] = frozenset()
        """The storages that were alive when the last backward ended."""
        self._from_start: frozenset[int] = frozenset()
        """The storages that were alive when the recording began."""
        self._most = 0  # bytes that earlier backwards left
        self._grew = 0  # how often they grew

    def begin(self) -> None:
        """Note what is alive; the recording begins."""
        self._from_start = frozenset(self._session.engine.live_nbytes())

    def after_backward(self) -> None:
        """Note what is alive; an outermost backward has ended."""
        self._left = frozenset(self._session.engine.live_nbytes())

    def before_backward(self) -> None:
        """Record the holders when backwards have left more than ever, the 1st, 3rd, 7th time."""
        if self._live is None:
            return
        alive = self._session.engine.live_nbytes()
        for each in self._from_start | self._live.lasting():
            alive.pop(each, None)
        kept = sum(nbytes for each, nbytes in alive.items() if each in self._left)
        if kept > max(self._most, _LEAST * sum(alive.values())):
            self._most = kept
            self._grew += 1
            if not self._grew & (self._grew + 1):
                self.read()

    def read(self, failure_seq: int | None = None) -> None:
        """Record them now."""
        session = self._session
        if session.fake_mode is not None:
            return
        holders = find_holders(seconds=_SECONDS)
        reading, self._readings = self._readings, self._readings + 1
        session.emit(
            MemoryHoldersRead, reading, failure_seq, holders.nbytes, holders.is_complete,
            stack_id=session.stack_id(),
        )  # fmt: skip
        with DisableTorchFunction():
            for each in holders.found[:_MOST]:
                session.emit(
                    MemoryHolderFound, reading, each.root, each.path, each.type_name,
                    each.entries, each.alike, each.also, *each.place, each.nbytes,
                    tuple(map(self._tensors.intern, each.tensors)),
                )  # fmt: skip
