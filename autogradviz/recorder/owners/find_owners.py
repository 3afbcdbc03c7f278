"""The shortest paths from what is alive by itself to a tensor or a node.

NOTE [ Owners of a graph ]
Python's garbage collector knows which objects refer to a tensor, but not what C++ owns: a node's
next nodes, its saved tensors, and the node of a tensor. ``GraphOwners`` reads these from all live
tensors. From the target, the search goes to its owners, level by level; each level is one call of
``gc.get_referrers``. Bookkeeping is in numbers and in one list, which the search leaves out, and
which is emptied at the end: nothing is kept alive.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections import deque
from itertools import groupby
from time import thread_time
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import OldGraphHeld
from autogradviz.recorder.torch_internals.graph_owners import (
    GraphOwners,
    accumulating_node,
    is_node,
)
from autogradviz.recorder.torch_internals.private_api import get_sequence_nr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.backward.training_steps import StepTable
    from autogradviz.recorder.session import Session


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


class OwnerSearch:
    """Finds the owners of objects, in Python and in C++. It holds all of them."""

    def __init__(self, targets: list[Any], graph: GraphOwners) -> None:
        """Begin with some objects, whose owners in C++ have been read."""
        self.objects: list[Any] = targets
        self.places = {id(each): place for place, each in enumerate(targets)}
        self.roots = Roots()
        self.graph = graph
        self.of_recorder: set[int] = set()
        """The addresses of objects to which objects of the recorder refer."""
        self.searches = 0
        """How often the heap was searched."""

    def clear(self) -> None:
        """Forget all objects."""
        self.objects.clear()
        self.graph.clear()

    def owners_of(self, places: list[int]) -> Iterator[tuple[Any, Any, str | None]]:
        """Yield each owner of some objects, what it owns, and the part of it that C++ knows."""
        # First of all: what was yielded last is in a variable of the caller, which counts as one.
        values = [self.objects[place] for place in places if self._may_have_owners(place)]
        for place in places:
            value = self.objects[place]
            if _is_table_of_hooks(value):
                self.graph.read_hooks()
            for owner, label in self.graph.of(value):
                yield owner, value, label
        if values:
            self.searches += 1
            skip = {id(self.objects), id(self.graph.held), id(values)}
            for owner, owned in referrers(values, skip, self.of_recorder):
                if id(owner) not in self.roots.running:
                    yield owner, owned, None

    def add(self, value: Any) -> int:
        """Add an object; return its place."""
        place = self.places[id(value)] = len(self.objects)
        self.objects.append(value)
        return place

    def _may_have_owners(self, place: int) -> bool:
        """Return whether Python objects may own an object: most nodes are only in our lists."""
        owned_by_us = sys.getrefcount(self.objects[place]) <= _OUR_REFERENCES
        return not (owned_by_us and is_node(self.objects[place]))


def _is_table_of_hooks(value: Any) -> bool:
    """Return whether an object may be a container of hooks, which a node or tensor has in C++."""
    return has_type(value, dict) and all(type(key) is int for key in list(dict.keys(value)))


class _Search(OwnerSearch):
    def __init__(
        self, target: Any, deadline: float, most: int, graph: GraphOwners | None = None
    ) -> None:
        super().__init__([target], GraphOwners(target, deadline) if graph is None else graph)
        self._deadline = deadline
        self._most = most
        self._owned = [0]  # by owner, what it owns
        self._labels = [""]
        self._paths: dict[str, Path] = {}
        self._cycle: Path | None = None

    def run(self) -> Search:
        """Search until the time or the owners end, or enough roots are found."""
        level, is_complete = [0], self.graph.is_complete
        while level and self.searches < _DEEPEST:
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
            root = self.roots.of(self.objects[place])
            if root:
                self._add_path(root, place)
        found, owned_by_any = [], set[int]()
        for owner, owned, part in self.owners_of(level):
            place = self.places[id(owned)]
            owned_by_any.add(place)
            root = self.roots.of_owner(owner, owned)
            if root:
                self._add_path(root, place)
            elif id(owner) == id(self.objects[0]):
                label = label_of(owner, owned) if part is None else part
                self._cycle = self._cycle or self._path(_CYCLE, place, label)
            elif id(owner) not in self.places:
                found.append(self.add(owner))
                self._owned.append(place)
                self._labels.append(label_of(owner, owned) if part is None else part)
        for place in level:
            if place and place not in owned_by_any and _is_table_of_hooks(self.objects[place]):
                self._add_path("hooks of a node or tensor, in C++", place)
        return found

    def _add_path(self, root: str, place: int) -> None:
        if root not in self._paths:
            self._paths[root] = self._path(root, place)

    def _path(self, root: str, place: int, first: str = "") -> Path:
        """Return the path from a root to the target; ``first`` is the part of the target itself."""
        steps = []
        if first:
            target = self.objects[0]
            steps.append(Step(type_name(target), first, is_node(target)))
        while place:
            owner = self.objects[place]
            steps.append(Step(type_name(owner), self._labels[place], is_node(owner)))
            place = self._owned[place]
        return Path(root, tuple(steps))


# --- the owner of a graph of an earlier step that is alive when a recording ends ------------------


_SECONDS: Final = 1.0  # for each of two searches
_EARLIER: Final = 2  # ended steps; the graph of the last one may be in a variable


class HeldGraphs:
    """Records which object keeps a graph of an earlier step alive."""

    def __init__(self, session: Session, steps: StepTable) -> None:
        self._session = session
        self._first = get_sequence_nr()
        self._ends: deque[int] = deque(maxlen=_EARLIER)
        steps.listeners.append(self._step_ended)

    def _step_ended(self, _seq: int) -> None:
        self._ends.append(get_sequence_nr())

    def record(self) -> None:
        """Record the owners of the oldest node of the recording that is alive, if it is old."""
        if len(self._ends) < _EARLIER:
            return
        graph = GraphOwners(None, thread_time() + _SECONDS)
        node = graph.oldest_node(self._first, self._ends[0])
        if node is None:
            graph.clear()
            return
        found = find_owners(node, seconds=_SECONDS, most=1, graph=graph)
        for path in [each for each in found.paths if each.steps][:1]:
            number = node._sequence_nr()  # noqa: SLF001
            self._session.emit(OldGraphHeld, type(node).__name__, number, path.root, path.text)


# --- the part of a Python object that refers to another one, and the objects that are roots -------
#
# Nothing here runs code of the program: attributes are read through the slots and dictionaries of
# types, never with ``getattr``, and no object of the program is compared, hashed or printed.


_OWN: Final = "autogradviz"
_MODULE_DICT: Final = ModuleType.__dict__["__dict__"]  # type: ignore[index]
_MRO: Final = type.__dict__["__mro__"]
_TYPE_DICT: Final = type.__dict__["__dict__"]
_PLAIN_KEYS: Final = (str, int, bool, float, bytes, type(None))
_FUNCTION_FRAME: Final = 1  # CO_OPTIMIZED: its locals are no dictionary
_LEAST_REFERENCES: Final = 3  # a frame's, the variable's, and that of getrefcount's argument


def type_name(value: Any) -> str:
    """Return the name of an object's type, "Trainer"."""
    return type.__dict__["__name__"].__get__(type(value))  # type: ignore[no-any-return]


def has_type(value: Any, kind: type) -> bool:
    """Return whether an object is of a type; ``isinstance`` would ask ``value.__class__``."""
    return issubclass(type(value), kind)


def name_of_type(kind: type) -> str:
    """Return the qualified name of a class."""
    return type.__dict__["__qualname__"].__get__(kind)  # type: ignore[no-any-return]


def module_of_type(kind: type) -> str:
    """Return the name of the module that defines a class, "" if it is unknown."""
    name = _TYPE_DICT.__get__(kind).get("__module__")
    return name if type(name) is str else "builtins"


def file_of_module(name: str) -> str:
    """Return the file of an imported module, "" if it has none."""
    module = sys.modules.get(name)
    if not has_type(module, ModuleType):
        return ""
    found = _MODULE_DICT.__get__(module).get("__file__")
    return found if type(found) is str else ""


def file_of_type(kind: type) -> str:
    """Return the file with the methods of a class, else that of its module; "" if it has none."""
    for member in list(_TYPE_DICT.__get__(kind).values()):
        filename = member.__code__.co_filename if type(member) is FunctionType else "<"
        if not filename.startswith("<"):  # as those that ``dataclass`` writes
            return filename
    return file_of_module(module_of_type(kind))


def instance_dict(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, None if it has none."""
    for kind in _MRO.__get__(type(value)):
        descriptor = _TYPE_DICT.__get__(kind).get("__dict__")
        if descriptor is not None:
            if type(descriptor) is not GetSetDescriptorType:
                return None  # a property of the program
            found = descriptor.__get__(value)
            return found if type(found) is dict else None
    return None


def label_of(owner: Any, owned: Any) -> str:
    """Return the part of an object that refers to another one, as Python writes it: ``[3]``."""
    if has_type(owner, dict):
        return _key_of(owner, owned)
    kind = next((each for each in (list, tuple, deque) if has_type(owner, each)), None)
    if kind is not None:
        for place, each in enumerate(list(kind.__iter__(owner))):
            if each is owned:
                return f"[{place}]"
    if has_type(owner, set) or has_type(owner, frozenset):
        return " (a member)"
    found = _attribute_of(owner, owned)
    return " (inside)" if found is None else found


def _key_of(owner: dict[Any, Any], owned: Any) -> str:
    for key, value in list(dict.items(owner)):
        if value is owned:
            return f"[{key!r}]" if type(key) in _PLAIN_KEYS else f"[a {type_name(key)}]"
    return " (a key)"


def _attribute_of(owner: Any, owned: Any) -> str | None:
    """Return the attribute that holds an object, "" for an object's only content."""
    known = _PARTS.get(type(owner))
    if known is not None:
        return known(owner, owned)
    if has_type(owner, BaseException) and type(owned) is TracebackType:
        return ".__traceback__"
    own = instance_dict(owner)
    if own is owned:
        return ""
    for name, value in list(dict.items(own)) if own is not None else ():
        if value is owned and type(name) is str:
            return f".{name}"
    return _slot_of(owner, owned)


def _local_of(frame: FrameType | None, owned: Any) -> str | None:
    if frame is None:
        return None
    names = [name for name, value_id in local_ids(frame) if value_id == id(owned)]
    return f" (local {names[0]} of {frame.f_code.co_name})" if names else None


def _slot_of(owner: Any, owned: Any) -> str | None:
    for kind in _MRO.__get__(type(owner)):
        for name, member in list(_TYPE_DICT.__get__(kind).items()):
            if type(member) is MemberDescriptorType:
                try:
                    value = member.__get__(owner)
                except AttributeError:
                    continue
                if value is owned:
                    return f".{name}"
    return None


def _part_of_function(function: FunctionType, owned: Any) -> str | None:
    if owned is function.__closure__:
        return f" {function.__name__} (closure)"
    return ".__defaults__" if owned is function.__defaults__ else None


_PARTS: Final[dict[type, Callable[[Any, Any], str | None]]] = {
    CellType: lambda _owner, _owned: "",
    FunctionType: _part_of_function,
    MethodType: lambda owner, owned: ".__self__" if owner.__self__ is owned else ".__func__",
    BuiltinFunctionType: lambda _owner, _owned: ".__self__",
    TracebackType: lambda owner, owned: ".tb_frame" if owner.tb_frame is owned else ".tb_next",
    FrameType: _local_of,
    GeneratorType: lambda owner, owned: _local_of(owner.gi_frame, owned),
    CoroutineType: lambda owner, owned: _local_of(owner.cr_frame, owned),
    AsyncGeneratorType: lambda owner, owned: _local_of(owner.ag_frame, owned),
}
"""By type, a function that returns the part of an object that holds another one."""


def local_ids(frame: FrameType) -> list[tuple[str, int]]:
    """Return the local variables of a function, each with the address of its value.

    Until Python 3.13 a frame keeps the dictionary that ``f_locals`` returns, and with it the
    values. It is emptied unless the program holds it.
    """
    values = frame.f_locals
    found = [(name, id(value)) for name, value in values.items()]
    if sys.version_info < (3, 13) and frame.f_code.co_flags & _FUNCTION_FRAME:
        if sys.getrefcount(values) <= _LEAST_REFERENCES:
            values.clear()
    return found


class Roots:
    """The objects that are alive by themselves: modules, classes, locals of running functions."""

    def __init__(self) -> None:
        self.module_dicts: Final[dict[int, str]] = {}
        for name, module in sys.modules.copy().items():
            if has_type(module, ModuleType) and not name.startswith(f"{_OWN}."):
                self.module_dicts.setdefault(id(_MODULE_DICT.__get__(module)), name)
        self._locals: Final[dict[int, str]] = {}
        self.files: Final[dict[int, tuple[str, int]]] = {}
        """File and line of the running functions, by the address of the value of a variable."""
        self.running: Final[set[int]] = set()
        """The addresses of running frames: ``of`` has their variables."""
        self._read_threads()

    def _read_threads(self) -> None:
        names = {each.ident: each.name for each in threading.enumerate()}
        for ident, top in list(sys._current_frames().items()):  # noqa: SLF001 - the documented way
            thread = names.get(ident, "a thread")
            where = "" if ident == threading.main_thread().ident else f", thread {thread}"
            frame: FrameType | None = top
            while frame is not None:
                self.running.add(id(frame))
                self._read_frame(frame, where)
                frame = frame.f_back
            del top  # a frame in a variable of its own would keep our callers' variables alive
        handled = sys.exc_info()[1]
        if handled is not None:
            self._locals.setdefault(id(handled), "the exception that is being handled")

    def _read_frame(self, frame: FrameType, where: str) -> None:
        module = dict.get(frame.f_globals, "__name__")
        own = type(module) is str and (module == _OWN or module.startswith(f"{_OWN}."))
        if own or not frame.f_code.co_flags & _FUNCTION_FRAME:
            return  # of a module or class, whose variables are in a dictionary
        for name, value_id in local_ids(frame):
            self._locals.setdefault(
                value_id, f"local {name} of {frame.f_code.co_name}(), line {frame.f_lineno}{where}"
            )
            self.files.setdefault(value_id, (frame.f_code.co_filename, frame.f_lineno))

    def of(self, value: Any) -> str:
        """Return the root that refers to an object: "local loss of step()"; "" if nothing."""
        return self._locals.get(id(value), "")

    def of_owner(self, owner: Any, owned: Any) -> str:
        """Return the root that an owner is, with the part of it: "global losses"; "" if none."""
        name = self.module_dicts.get(id(owner)) or _name_of_globals(owner)
        if name is not None:
            key = label_of(owner, owned).removeprefix("['").removesuffix("']")
            return f"global {key} of module {name}"
        if has_type(owner, type):
            return f"class {name_of_type(owner)}"
        return ""


def _name_of_globals(owner: Any) -> str | None:
    """Return the name of a namespace in which code ran that is no module in ``sys.modules``."""
    if type(owner) is not dict or "__builtins__" not in owner:
        return None
    name = owner.get("__name__")
    return name if type(name) is str else None


def referrers(
    values: list[Any], skip: set[int], of_recorder: set[int] | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield each object that refers to one or more of some others, with each of these.

    Args:
        values: the objects.
        skip: the addresses of containers that do not count.
        of_recorder: gets the addresses of values to which objects of the recorder refer.
    """
    wanted = {id(each) for each in values}
    found = gc.get_referrers(*values)
    left_out = skip | {id(values), id(found)}
    for owner in found:
        if id(owner) in left_out:
            continue
        is_own = _is_own(owner)
        for owned in gc.get_referents(owner) if not is_own or of_recorder is not None else ():
            if id(owned) not in wanted:
                continue
            if not is_own:
                yield owner, owned
            elif of_recorder is not None:
                of_recorder.add(id(owned))


def _is_own(owner: Any) -> bool:
    module = _TYPE_DICT.__get__(type(owner)).get("__module__")
    return type(module) is str and module.startswith(f"{_OWN}.")
