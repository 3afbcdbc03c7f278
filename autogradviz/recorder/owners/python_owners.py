"""The part of a Python object that refers to another one, and the objects that are roots.

Nothing here runs code of the program: attributes are read through the slots and dictionaries of
types, never with ``getattr``, and no object of the program is compared, hashed or printed.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        for name, module in list(sys.modules.items()):
            if has_type(module, ModuleType) and not name.startswith(f"{_OWN}."):
                self.module_dicts.setdefault(id(_MODULE_DICT.__get__(module)), name)
        self._locals: Final[dict[int, str]] = {}
        self._read_threads()

    def _read_threads(self) -> None:
        names = {each.ident: each.name for each in threading.enumerate()}
        for ident, top in list(sys._current_frames().items()):  # noqa: SLF001 - the documented way
            thread = names.get(ident, "a thread")
            where = "" if ident == threading.main_thread().ident else f", thread {thread}"
            frame: FrameType | None = top
            while frame is not None:
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

    def of(self, value: Any) -> str:
        """Return the root that refers to an object: "local loss of step()"; "" if nothing."""
        return self._locals.get(id(value), "")

    def of_owner(self, owner: Any, label: str) -> str:
        """Return the root that an owner is, with the part of it: "global losses"; "" if none."""
        name = self.module_dicts.get(id(owner)) or _name_of_globals(owner)
        if name is not None:
            key = label.removeprefix("['").removesuffix("']")
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


def referrers(values: list[Any], skip: set[int]) -> Iterator[tuple[Any, Any]]:
    """Yield each object that refers to one or more of some others, with each of these.

    Args:
        values: the objects.
        skip: the addresses of containers that do not count.
    """
    wanted = {id(each) for each in values}
    found = gc.get_referrers(*values)
    left_out = skip | {id(values), id(found)}
    for owner in found:
        if id(owner) in left_out or _is_own(owner):
            continue
        for owned in gc.get_referents(owner):
            if id(owned) in wanted:
                yield owner, owned


def _is_own(owner: Any) -> bool:
    module = _TYPE_DICT.__get__(type(owner)).get("__module__")
    return type(module) is str and module.startswith(f"{_OWN}.")
