"""A walk over state that is repeated without building paths and readings again.

The values that a walk queued depend only on the values before them. If each value has the parts
that it had before, the same objects in the same places, the whole walk is as before; what remains
is to read the values that can change while they stay the same object, most of them tensors.

No object of the user is kept: objects are compared by address and class, and those at an address
that was used again are noticed by their parts and readings, as in a new walk. Only plain values are
kept, since their readings were not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import torch

from autogradviz.event_log.state_value_diff import StateValue
from autogradviz.recorder.checkpoint.module_attributes import parts_of_module
from autogradviz.recorder.checkpoint.value_repr import (
    PLAIN,
    read_value,
    tensor_facts,
    tensor_reading,
)
from autogradviz.recorder.torch_internals.plain_tensors import PLAIN_TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autogradviz.event_log.state_value_diff import Reading
    from autogradviz.recorder.checkpoint.state_walk import Path, StateWalk, Visit
    from autogradviz.recorder.checkpoint.value_repr import ObjectIds, TensorFacts

    Readings: TypeAlias = Sequence[tuple[int, Reading | None, TensorFacts | None]]
    TakeSnapshot: TypeAlias = Callable[
        [StateWalk, int, Sequence[Visit], Readings], "Snapshot | None"
    ]

MAX_KEPT: Final = 4096
"""Longer texts are not kept."""


class Snapshot(Protocol):
    """The objects that a walk read, in the native engine."""

    def compare(self, roots: list[Any]) -> list[tuple[int, Any]] | None:
        """Compare the objects that the walk read with those that are there now.

        Returns:
            The readings that must be read again, by number, and their values; None if a new walk
            may queue other values.
        """


class RepeatedWalk:
    """The queue and the readings of a walk that has ended."""

    __slots__ = (
        "_addresses",
        "_can_repeat",
        "_found",
        "_ids",
        "_places",
        "_plain",
        "_readings",
        "_roots",
        "_snapshot",
        "_take_snapshot",
        "_visits",
    )

    def __init__(
        self, walk: StateWalk, roots: int, ids: ObjectIds, take_snapshot: TakeSnapshot | None
    ) -> None:
        """Remember a walk that has ended.

        Args:
            walk: the walk.
            roots: the number of values that were queued before it began.
            ids: the numbers of addresses.
            take_snapshot: the function of the native engine, if it records.
        """
        self._ids = ids
        self._roots = roots
        self._take_snapshot = take_snapshot
        self._snapshot: Snapshot | None = None
        self._found = walk.found
        self._places = walk.places
        self._visits = tuple(walk.visits)
        self._readings = [
            each for each in walk.readings if not isinstance(walk.values[each[0]], torch.nn.Module)
        ]
        self._addresses = list(map(id, walk.values))
        self._plain = tuple([value if type(value) in PLAIN else ... for value in walk.values])
        self._can_repeat = not any(map(_is_long, self._plain)) and all(
            _has_hash(facts) for _, _, facts in self._readings
        )

    def repeat(self, walk: StateWalk) -> dict[Path, Reading] | None:
        """Return the readings of a new walk, None if its queue is not the same as before.

        Args:
            walk: a new walk that has only its roots; it is used up.
        """
        if not self._can_repeat:
            return None
        changed = None if self._snapshot is None else self._snapshot.compare(walk.values)
        if changed is None:
            if not self._has_same_queue(walk):
                return None
            values = walk.values
            changed = [(n, values[index]) for n, (index, _, _) in enumerate(self._readings)]
            if self._take_snapshot is not None:  # not earlier: state may change between all walks
                self._snapshot = self._take_snapshot(
                    walk, self._roots, self._visits, self._readings
                )
                self._take_snapshot = None
        return self._found if self._update(changed) else None

    def _update(self, changed: list[tuple[int, Any]]) -> bool:
        """Read values again; return whether all have a reading of the same kind.

        Args:
            changed: numbers of readings, and the values.
        """
        updates: dict[Path, Reading] = {}
        for number, value in changed:
            index, reading, facts = self._readings[number]
            now_facts: TensorFacts | None = None
            if facts is None:
                now = read_value(value, self._ids)
            else:
                now_facts = tensor_facts(value)
                if now_facts == facts:
                    continue
                now = tensor_reading(now_facts, self._ids)
            if now == reading:
                continue
            if not (isinstance(now, StateValue) and isinstance(reading, StateValue)):
                return False
            path, _ = self._places[index]
            if self._found[path] is reading:  # not that of an earlier value with this path
                updates[path] = now
            self._readings[number] = (index, now, now_facts)
        if updates:  # readings that were returned before stay as they were
            self._found = {**self._found, **updates}
        return True

    def _has_same_queue(self, walk: StateWalk) -> bool:
        """Queue the parts of the values that were visited; return whether they are the same."""
        places, values = self._places, walk.values
        if walk.places != places[: len(values)]:
            return False
        for index, class_address, length, names, with_methods in self._visits:
            value = values[index]
            kind = type(value)
            if id(kind) != class_address:
                return False
            if names is not None:
                parts = parts_of_module(value)
                if parts is None or parts[0] != names:
                    return False
                first = len(values)
                values += parts[1]
                walk.places += places[first : len(values)]
                if with_methods:
                    walk.visit_methods(kind, places[index][1])
            elif kind not in PLAIN_TENSORS or value.__dict__:
                path, depth = places[index]
                walk.visit(path, value, depth)
            if len(values) != length:
                return False
        return (
            walk.places == places
            and (list(map(id, values)) == self._addresses or self._has_same_plain_values(values))
            and self._has_same_hooks(walk.found)
        )

    def _has_same_plain_values(self, values: list[Any]) -> bool:
        """Return whether all values are the same objects, or plain and look the same.

        A variable of the environment is a new string each time that it is read.
        """
        return all(
            id(value) == address
            or (type(value) in PLAIN and type(value) is type(kept) and repr(value) == repr(kept))
            for value, address, kept in zip(values, self._addresses, self._plain, strict=True)
        )

    def _has_same_hooks(self, found: dict[Path, Reading]) -> bool:
        """Return whether as many hooks were counted as before.

        Args:
            found: what is read where parts are queued; else it depends on the objects alone.
        """
        return all(
            self._found.get(path) == reading
            for path, reading in found.items()
            if isinstance(reading, StateValue) and reading.kind == "hooks"
        )


def _is_long(value: Any) -> bool:
    return isinstance(value, (str, bytes)) and len(value) > MAX_KEPT


def _has_hash(facts: TensorFacts | None) -> bool:
    """Return whether the sizes of a tensor are numbers: comparing others would specialize them."""
    try:
        hash(facts)
    except TypeError:
        return False
    return True
