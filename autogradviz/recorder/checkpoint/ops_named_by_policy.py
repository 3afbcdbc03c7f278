"""The operators that the code of a checkpoint policy names, read without running it."""

from __future__ import annotations

import dis
import functools
import re
from collections import ChainMap
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.torch_internals.private_api import (
    OpOverload,
    has_kernel_for_dispatch_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# The operators that a policy of selective checkpointing names: in its code and what it refers to.
#
# Nothing of the user's is called. Names are found in constants, closures, defaults, attributes and
# globals of the policy and of the functions that it refers to, and where its bytecode reads
# ``torch.ops.aten.mm.default``.


_OPS: Final = type(torch.ops)
_NAMESPACE: Final = type(torch.ops.aten)
_PACKET: Final = type(torch.ops.aten.mm)
_NAME: Final = re.compile(r"([a-zA-Z_]\w*)(?:::|\.)([a-zA-Z_]\w*)(?:\.(\w+))?")
_LISTS_OF_OPS: Final = "torch.utils.checkpoint"
_DEEPEST: Final = 6
_MOST: Final = 20_000
"""Objects that are looked at for one policy."""


def named_ops(policy: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operators that a policy names, and those of them that it can never see.

    An overload is "aten.mm.default", all overloads of an operator "aten.mm", and a name that is
    text is in quotes. PyTorch decomposes some operators before a policy sees them, such as
    ``aten.linear``.
    """
    walk = _Walk()
    walk.look_at(policy, 0)
    composite = tuple(name for name, op in walk.found.items() if _is_decomposed(op))
    return tuple(walk.found), composite


class _Walk:
    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._seen: dict[int, Any] = {}  # by id; holds the object, so that its id stays its own

    def look_at(self, value: Any, depth: int) -> None:
        """Find names in an object and in what it refers to."""
        if isinstance(value, (OpOverload, _PACKET)):
            self.found[str(value)] = value
        elif type(value) is str:
            self._text(value)
        elif depth < _DEEPEST and len(self._seen) < _MOST and id(value) not in self._seen:
            self._seen[id(value)] = value
            for part in _parts(value):
                self.look_at(part, depth + 1)

    def _text(self, text: str) -> None:
        match = _NAME.fullmatch(text)
        if match is None or match[1] not in vars(torch.ops):  # namespaces in use
            return
        packet = getattr(getattr(torch.ops, match[1]), match[2], None)
        if not isinstance(packet, _PACKET):
            return
        op = getattr(packet, match[3], None) if match[3] else packet
        if isinstance(op, (OpOverload, _PACKET)):
            self.found[f"'{op}'"] = op


def _parts(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is dict:
        yield from value.keys()
        yield from value.values()
    elif kind in (set, frozenset):
        yield from sorted(value, key=_name_or_nothing)
    elif kind in (list, tuple):
        yield from value
    elif kind is functools.partial:
        yield from (value.func, *value.args, *value.keywords.values())
    elif kind is MethodType:
        yield from (value.__func__, value.__self__)
    elif kind is FunctionType:
        yield from _parts_of_function(value)
    elif not issubclass(kind, (type, torch.nn.Module)):
        yield from _parts_of_object(value, kind)


def _name_or_nothing(value: Any) -> str:
    """Return the name of an operator or text, to sort by: the order in a set differs."""
    return str(value) if isinstance(value, (OpOverload, _PACKET, str)) else ""


def _parts_of_object(value: Any, kind: type) -> Iterator[Any]:
    """Yield attributes and the method ``__call__``, past a ``__getattr__`` of the user's own."""
    if kind.__module__.partition(".")[0] in {"torch", "builtins"}:  # also modules and tensors
        return
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    if type(attributes) is dict:
        yield from attributes.values()
    for owner in kind.__mro__:
        if isinstance(call := owner.__dict__.get("__call__"), FunctionType):
            yield call
            return


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    module = function.__module__ or ""
    if module.partition(".")[0] == "torch" and module != _LISTS_OF_OPS:
        return
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    names = {name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)}
    yield from names.values()
    yield from _parts_of_code(function.__code__, ChainMap(names, function.__globals__))


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if it is empty
    except ValueError:
        return False
    return True


def _parts_of_code(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the constants of code, and the globals and ``torch`` attributes that it reads."""
    value: Any = None
    variables: dict[str, Any] = {}  # "aten = torch.ops.aten" inside the function
    for opname, name in _steps(code):
        if opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and _is_torch(value):
            value = getattr(value, name, None)
            continue
        yield value
        if opname == "STORE_FAST" and _is_torch(value):
            variables[name] = value
        value = None
        if opname.startswith("LOAD_FAST"):
            value = variables.get(name)
        elif opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")):
            value = names.get(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts_of_code(constant, names)
        else:
            yield constant


@functools.lru_cache(maxsize=128)
def _steps(code: CodeType) -> tuple[tuple[str, str], ...]:
    """Return name and argument of each instruction: code never changes, what it reads may."""
    return tuple((step.opname, str(step.argval)) for step in dis.get_instructions(code))


def _is_torch(value: Any) -> bool:
    """Return whether reading an attribute runs no code of the user."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] == "torch"
    return isinstance(value, (_OPS, _NAMESPACE, _PACKET))


@functools.lru_cache(maxsize=1024)
def _is_decomposed(op: Any) -> bool:
    """Return whether PyTorch decomposes all overloads of an operator before any mode sees them."""
    if isinstance(op, _PACKET):
        overloads = [getattr(op, name) for name in op.overloads() if not name.endswith("out")]
        return bool(overloads) and all(map(_is_decomposed, overloads))
    try:
        return bool(has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"))
    except RuntimeError:  # TorchScript alone knows it, as aten.sym_size.default
        return False
