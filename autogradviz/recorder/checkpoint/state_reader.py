"""Reads the state that checkpointed functions can access.

A region is read several times, and most of its state is the same each time. A walk that found the
same before is therefore only checked: what it returned is returned again, as the same object.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.checkpoint.repeated_walk import RepeatedWalk
from autogradviz.recorder.checkpoint.state_walk import StateWalk
from autogradviz.recorder.checkpoint.value_repr import ObjectIds

if TYPE_CHECKING:
    from autogradviz.event_log.state_value_diff import Reading
    from autogradviz.recorder.checkpoint.repeated_walk import TakeSnapshot
    from autogradviz.recorder.checkpoint.state_walk import Path

MAX_WALKS: Final = 256
"""Functions whose last walk is remembered."""


class StateReader:
    """Reads the state that functions can access, and remembers their last walks."""

    def __init__(self, take_snapshot: TakeSnapshot | None = None) -> None:
        """Prepare to read.

        Args:
            take_snapshot: the function of the native engine, if it records.
        """
        self._take_snapshot = take_snapshot
        self._ids = ObjectIds()
        self._walks: dict[tuple[int, ...], RepeatedWalk] = {}  # by addresses, the latest last

    def read(
        self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> dict[Path, Reading]:
        """Return readings of the state that a function can access, by path.

        Args:
            function: a function, a bound method, a module or a callable object.
            arguments: its positional arguments; tensors may be replaced by None.
            named: its keyword arguments.
        """
        walk = StateWalk(self._ids)
        key = _add_roots(walk, function, arguments, named)
        last = self._walks.pop(key, None)
        found = None if last is None else last.repeat(walk)
        if last is None or found is None:
            walk = StateWalk(self._ids)
            _add_roots(walk, function, arguments, named)
            roots = len(walk.values)
            found = walk.walk()
            last = RepeatedWalk(walk, roots, self._ids, self._take_snapshot)
            if len(self._walks) >= MAX_WALKS:
                del self._walks[next(iter(self._walks))]
        self._walks[key] = last
        return found

    def prune(self) -> None:
        """Forget the oldest objects of a long recording, and the walks that found them."""
        if self._ids.prune():
            self._walks.clear()


def _add_roots(
    walk: StateWalk, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[int, ...]:
    """Queue a function and its arguments.

    Returns:
        Addresses that are the same for each call of the function; a walk that was remembered for
        another function at the same address is noticed when it is repeated.
    """
    names: tuple[str, ...] = ()
    while isinstance(function, functools.partial):
        arguments, named = (*function.args, *arguments), {**function.keywords, **named}
        function = function.func
    target = owner = function
    if isinstance(function, torch.nn.Module):
        walk.add(("self",), function)
        target = type(function).forward
    elif isinstance(function, types.MethodType):
        target, owner = function.__func__, function.__self__
        walk.add(("self",), owner)
    elif not isinstance(function, types.FunctionType):  # a callable object
        walk.add(("self",), function)
        target = vars(type(function)).get("__call__")
    if isinstance(target, types.FunctionType):
        code = target.__code__
        names = code.co_varnames[: code.co_argcount]
        names = names[1:] if target is not function else names
        if target is function:
            walk.add((function.__name__,), function)
        else:
            walk.add(("self", "forward"), target)
    for index, value in enumerate(arguments):
        walk.add((names[index],) if index < len(names) else ("args", f"[{index}]"), value)
    for name, value in named.items():
        walk.add((name,), value)
    return id(target), id(owner)
