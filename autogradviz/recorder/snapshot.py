"""What a function can read besides its tensors: a bounded, harmless description.

``describe`` walks from a function to what its code reads (closure cells, globals, defaults), to
the module that it belongs to and to its arguments, and describes what it finds as short text by
path: ``{"self.calls": "1", "cache.keys": "len 1"}``. Nothing of the user's code runs: instance
dictionaries are read directly, and only plain built-in values are shown.
"""

from __future__ import annotations

import collections
import itertools
import random
import sys
import threading
import types
from typing import Any, Final

import torch

from autogradviz.recorder.stacks import is_library
from autogradviz.recorder.tensors import version_of

MAX_OBJECTS: Final = 400
MAX_ITEMS: Final = 12
MAX_DEPTH: Final = 7
MAX_TEXT: Final = 60

_function_modes = torch.overrides._get_current_function_mode_stack  # noqa: SLF001
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_SEQUENCES: Final = (list, tuple, collections.deque)
_SETS: Final = (set, frozenset)
_CONTAINERS: Final = (*_SEQUENCES, *_SETS, dict, collections.OrderedDict, collections.defaultdict)
_COUNTERS: Final = (itertools.count, itertools.cycle, itertools.repeat)
_MODULE_INTERNALS: Final = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_compiled_call_impl"}
)


class Snapshot:
    """One walk over what a function can read."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._seen: set[int] = set()
        self._keep: list[Any] = []  # addresses stay unique while we walk
        self._queue: collections.deque[tuple[str, Any, int]] = collections.deque()

    def add(self, path: str, value: Any, depth: int = 0) -> None:
        """Queue one value for the walk."""
        if depth <= MAX_DEPTH:
            self._queue.append((path, value, depth))

    def walk(self) -> dict[str, str]:
        """Describe all that is queued and what it leads to, nearest first."""
        visited = 0
        while self._queue and visited < MAX_OBJECTS:
            path, value, depth = self._queue.popleft()
            kind = type(value)
            if kind in _PLAIN:
                self.found[path] = repr(value)[:MAX_TEXT]
                continue
            if id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._keep.append(value)
            visited += 1
            self._visit(path, value, kind, depth)
        self._keep.clear()
        return self.found

    def _visit(self, path: str, value: Any, kind: type, depth: int) -> None:  # noqa: C901 - a table
        if isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif isinstance(value, torch.nn.Module):
            self._module(path, value, depth)
        elif kind in _CONTAINERS:
            self._container(path, value, depth)
        elif kind in _COUNTERS:
            self.found[path] = repr(value)[:MAX_TEXT]
        elif kind is random.Random:
            self.found[path] = f"state {hash(value.getstate())}"
        elif kind is torch.Generator:
            self.found[path] = f"state {hash(bytes(value.get_state().tolist()))}"
        elif isinstance(value, types.MethodType):
            self.add(f"{path}.__self__", value.__self__, depth + 1)
            self.add(path, value.__func__, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._function(path, value, depth)
        elif isinstance(value, type):
            if not _from_library(value):
                self._instance(path, dict(vars(value)), depth, plain_too=True)
        elif isinstance(value, threading.local):
            self._instance(path, dict(value.__dict__), depth, plain_too=True)
        elif not isinstance(value, types.ModuleType):
            self._object(path, value, depth)

    def _tensor(self, path: str, value: torch.Tensor) -> None:
        if type(value) in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}:
            shape = "×".join(map(str, value.shape)) or "scalar"
            grad = ", requires grad" if value.requires_grad else ""
            place = "" if value.device.type == "cpu" else f" {value.device}"
            dtype = str(value.dtype).removeprefix("torch.")
            self.found[path] = f"{dtype} {shape}{place} v{version_of(value)}{grad}"

    def _module(self, path: str, value: torch.nn.Module, depth: int) -> None:
        held = value.__dict__
        for name, child in held.items():
            if name in _MODULE_INTERNALS:
                continue
            if name.endswith("_hooks"):  # how many of each kind
                if child:
                    self.found[f"{path}.{name}"] = f"{len(child)} hooks"
                continue
            if not name.startswith("_") or name[1:2] != "_":
                self.add(f"{path}.{name}", child, depth + 1)
        for table in ("_parameters", "_buffers", "_modules"):
            for name, child in list(held.get(table, {}).items()):
                self.add(f"{path}.{name}", child, depth + 1)
        if not _from_library(type(value)):
            forward = getattr(type(value), "forward", None)
            if isinstance(forward, types.FunctionType):
                self._names_read(forward, depth)

    def _container(self, path: str, value: Any, depth: int) -> None:
        self.found[path] = f"len {len(value)}"
        if isinstance(value, dict):
            for key, item in list(value.items())[:MAX_ITEMS]:
                if type(key) in _PLAIN:
                    self.add(f"{path}[{key!r}]", item, depth + 1)
        elif isinstance(value, _SEQUENCES):
            for index, item in enumerate(list(value)[:MAX_ITEMS]):
                self.add(f"{path}[{index}]", item, depth + 1)

    def _function(self, path: str, value: types.FunctionType, depth: int) -> None:
        if is_library(value.__code__.co_filename):
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                self.add(name, cell.cell_contents, depth + 1)
            except ValueError:
                continue
        for number, default in enumerate(value.__defaults__ or ()):
            self.add(f"{path}.defaults[{number}]", default, depth + 1)
        self._names_read(value, depth)

    def _names_read(self, function: types.FunctionType, depth: int) -> None:
        """Queue the globals that a function's code names."""
        for name in function.__code__.co_names:
            found = function.__globals__.get(name, self)
            if found is not self and not isinstance(found, types.ModuleType):
                self.add(name, found, depth + 1)

    def _object(self, path: str, value: Any, depth: int) -> None:
        if _from_library(type(value)):
            return
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            self._instance(path, dict(held), depth, plain_too=True)
        for kind in type(value).__mro__[:-1]:
            if _from_library(kind):
                continue
            mutable = {n: v for n, v in vars(kind).items() if type(v) in _CONTAINERS}
            self._instance(kind.__name__, mutable, depth, plain_too=False)

    def _instance(self, path: str, held: dict[str, Any], depth: int, *, plain_too: bool) -> None:
        for name, item in list(held.items()):
            if name.startswith("__"):
                continue
            if plain_too or type(item) not in _PLAIN:
                self.add(f"{path}.{name}", item, depth + 1)


def _from_library(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    filename = getattr(module, "__file__", None)
    return kind.__module__ == "builtins" or (filename is not None and is_library(filename))


def describe(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, str]:
    """Return what a function can read, as text by path.

    Args:
        function: what will be called: a function, a bound method or a module.
        arguments: its positional arguments; tensors among them may be None.
        named: its keyword arguments.
    """
    snapshot = Snapshot()
    names: tuple[str, ...] = ()
    target = function
    if isinstance(function, torch.nn.Module):
        snapshot.add("self", function)
        target = type(function).forward
    elif isinstance(function, types.MethodType):
        snapshot.add("self", function.__self__)
        target = function.__func__
    if isinstance(target, types.FunctionType):
        code = target.__code__
        names = code.co_varnames[: code.co_argcount]
        names = names[1:] if target is not function else names
        if target is function:
            snapshot.add(function.__name__, function)
        else:
            snapshot.add("self.forward", target)
    for index, value in enumerate(arguments):
        snapshot.add(names[index] if index < len(names) else f"args[{index}]", value)
    for name, value in named.items():
        snapshot.add(name, value)
    return snapshot.walk()


def surroundings() -> dict[str, tuple[str, str]]:
    """Return process-wide state that forward and recomputation should share: kind and text."""
    state = {
        "python random": ("random", f"state {hash(random.getstate())}"),
        "torch function modes": ("context", _names(_function_modes())),
        "attention backends": ("context", _attention_backends()),
        "default dtype": ("context", str(torch.get_default_dtype())),
        "deterministic algorithms": ("context", str(torch.are_deterministic_algorithms_enabled())),
        "float32 matmul precision": ("context", torch.get_float32_matmul_precision()),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kept = numpy.random.get_state(legacy=False)["state"]
        state["numpy random"] = ("random", f"state {hash((kept['key'].tobytes(), kept['pos']))}")
    return state


def _names(modes: list[Any]) -> str:
    names = [type(mode).__name__ for mode in modes]
    return ", ".join(name for name in names if name != "DeviceContext") or "none"


def _attention_backends() -> str:
    on = [
        name
        for name, enabled in (
            ("flash", torch.backends.cuda.flash_sdp_enabled()),
            ("memory-efficient", torch.backends.cuda.mem_efficient_sdp_enabled()),
            ("math", torch.backends.cuda.math_sdp_enabled()),
            ("cudnn", torch.backends.cuda.cudnn_sdp_enabled()),
        )
        if enabled
    ]
    return ", ".join(on) or "none"
