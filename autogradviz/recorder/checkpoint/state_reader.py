"""Reads the state that checkpointed functions can access.

A region is read several times, and most of its state is the same each time. A walk that found the
same before is therefore only checked: what it returned is returned again, as the same object.
"""

from __future__ import annotations

import functools
import types
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.recorder.checkpoint.state_walk import StateWalk
from autogradviz.recorder.checkpoint.state_walk_snapshot import RepeatedWalk
from autogradviz.recorder.checkpoint.value_repr import ObjectIds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.event_log.compare_state_readings import Reading
    from autogradviz.recorder.checkpoint.state_walk import Path
    from autogradviz.recorder.checkpoint.state_walk_snapshot import TakeSnapshot

Key: TypeAlias = "tuple[Any, ...]"

MAX_WALKS: Final = 512
"""Walks that are remembered; one of a layer of a Llama takes 0.1 MB."""
MAX_FORMS: Final = 4
"""Walks of one function that are remembered: a list that a region fills has more parts then."""


class StateReader:
    """Reads the state that functions can access, and remembers their last walks."""

    def __init__(self, take_snapshot: TakeSnapshot | None = None) -> None:
        """Prepare to read.

        Args:
            take_snapshot: the function of the native engine, if it records.
        """
        self._take_snapshot = take_snapshot
        self._ids = ObjectIds()
        self._walks: dict[
            Key, list[RepeatedWalk]
        ] = {}  # the latest key last, the latest walk first

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
        walks = self._walks.pop(key, [])
        previous = walks[0] if walks else None
        if previous is not None:  # as in the step before
            walks.sort(key=lambda each: id(each) != previous.follower)
        last = next((each for each in walks if each.repeat(walk)), None)
        if last is None:
            roots = len(walk.values)
            walk.walk()
            last = RepeatedWalk(walk, roots, self._take_snapshot, previous)
        if previous is not None:
            previous.follower = id(last)
        is_new = last not in walks
        self._walks[key] = [last, *[each for each in walks if each is not last][: MAX_FORMS - 1]]
        if is_new:
            self._forget_oldest()
        return last.found

    def _forget_oldest(self) -> None:
        """Keep the newest walks; other threads may add some meanwhile."""
        count = sum(map(len, self._walks.copy().values())) - MAX_WALKS
        for key in list(self._walks) if count > 0 else ():
            count -= len(self._walks.pop(key, ()))
            if count <= 0:
                break

    def prune(self) -> None:
        """Forget the oldest objects of a long recording, and the walks that found them."""
        if self._ids.prune():
            self._walks.clear()


def _add_roots(
    walk: StateWalk, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Key:
    """Queue a function and its arguments.

    Returns:
        What is the same for each call of the function, but not for its calls in other layers. A
        walk that was remembered for other objects at the same addresses is noticed when it is
        repeated.
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
    key: list[Any] = [] if owner is function and target is function else [id(owner)]
    for value in (target, *walk.values):
        _identify(value, key)
    return tuple(key)


def _identify(value: Any, key: list[Any]) -> None:
    """Add to a key what distinguishes a value from the same one of another layer.

    A function may be a new one for each call, around a layer or the numbers of some layers.
    """
    if isinstance(value, torch.nn.Module):
        key.append(id(value))
    elif type(value) is types.FunctionType:
        key.append(id(value.__code__))
        for content in _bound(value):
            if isinstance(content, torch.nn.Module):
                key.append(id(content))
            elif type(content) in {int, bool}:
                key.append(content)


def _bound(function: types.FunctionType) -> Iterator[Any]:
    """Yield the values bound to a function: ``lambda x, layer=layer: layer(x)``."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not bound yet
            yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
