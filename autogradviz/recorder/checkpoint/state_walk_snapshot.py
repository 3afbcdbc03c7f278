"""A walk over state that is repeated without building paths and readings again.

The values that a walk queued depend only on the values before them. The native engine compares what
each of them refers to with what it referred to before, see ``native/state_walk_snapshot.h``. If
that is the same but for values that lead nowhere else, only those are read again, most of them
tensors.

NOTE [ Steady state ]
In the fifth step, none of 10 checkpointed models of transformers, diffusers and timm walks. On a
machine that others used as well, a reading of a region of a Llama (270 values) took 75 us in a
loop, 300 us within a step (its memory is cold), a walk 1.8 ms, a snapshot of it 1.1 ms.

No object of the user is kept: objects are compared by address and class, and those at an address
that was used again are noticed by their parts and readings, as in a new walk. Only plain values are
kept, since their readings were not.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import torch

from autogradviz.event_log.compare_state_readings import StateValue
from autogradviz.recorder.checkpoint.value_repr import (
    MAX_TEXT,
    PLAIN,
    read_value,
    tensor_facts,
    tensor_reading,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autogradviz.event_log.compare_state_readings import Reading
    from autogradviz.recorder.checkpoint.state_walk import Path, StateWalk
    from autogradviz.recorder.checkpoint.value_repr import TensorFacts

    Readings: TypeAlias = Sequence[tuple[int, Reading | None, TensorFacts | None]]
    Changed: TypeAlias = list[tuple[int, Any]]
    TakeSnapshot: TypeAlias = Callable[[StateWalk, int, Readings], "Snapshot | None"]

MAX_KEPT: Final = 4096
"""Longer texts are not kept."""


class Snapshot(Protocol):
    """The objects that a walk read, in the native engine."""

    def compare(self, roots: list[Any]) -> tuple[Changed, Changed] | None:
        """Compare the objects that the walk read with those that are there now.

        Returns:
            The readings that must be read again, by number, and their values; the plain values that
            were replaced, by index in the queue. None if a new walk may queue other values.
        """


class RepeatedWalk:
    """The readings of a walk that has ended, and a check that another one would return the same."""

    __slots__ = (
        "_counts",
        "_places",
        "_readings",
        "_roots",
        "_snapshot",
        "_walk_ids",
        "follower",
        "found",
    )

    def __init__(
        self,
        walk: StateWalk,
        roots: int,
        take_snapshot: TakeSnapshot | None,
        last: RepeatedWalk | None,
    ) -> None:
        """Remember a walk that has ended.

        Args:
            walk: the walk.
            roots: the number of values that were queued before it began.
            take_snapshot: the function of the native engine, if it records.
            last: the walk before.
        """
        self.found = walk.found
        self.follower = 0
        """The address of the walk that was as the next one of the same function."""
        self._walk_ids = walk.ids
        self._places = walk.places
        self._roots = walk.places[:roots]
        self._counts: Counter[Path] | None = None  # of the paths in the queue
        self._readings = [  # those that can change; whether there is one depends on the class
            each
            for each in walk.readings
            if each[1] is not None and not isinstance(walk.values[each[0]], torch.nn.Module)
        ]
        self._snapshot: Snapshot | None = None
        if take_snapshot is not None and not any(map(_is_long, walk.values)) and all(
            _has_hash(facts) for _, _, facts in self._readings
        ):  # fmt: skip
            self._snapshot = take_snapshot(walk, roots, self._readings)
        if self._snapshot is None and last is not None and _are_same(last.found, self.found):
            self.found = last.found

    def repeat(self, walk: StateWalk) -> bool:
        """Update ``found`` to the readings of a new walk; return whether that is possible.

        Args:
            walk: a new walk that has only its roots.
        """
        if self._snapshot is None or walk.places != self._roots:
            return False
        changed = self._snapshot.compare(walk.values)
        if changed is None:
            return False
        if not self._update(*changed):
            self._snapshot = None
        return self._snapshot is not None

    def _update(self, changed: Changed, plain: Changed) -> bool:
        """Read values again; return whether all have a reading of the same kind.

        Args:
            changed: numbers of readings, and the values.
            plain: indices in the queue, and the plain values that are there now.
        """
        updates: dict[Path, Reading] = {}
        for number, value in changed:
            index, reading, facts = self._readings[number]
            now_facts: TensorFacts | None = None
            if facts is None:
                now = read_value(value, self._walk_ids)
            else:
                now_facts = tensor_facts(value)
                if now_facts == facts:
                    continue
                now = tensor_reading(now_facts, self._walk_ids)
            if now == reading:
                continue
            if not (isinstance(now, StateValue) and isinstance(reading, StateValue)):
                return False
            path, _ = self._places[index]
            if self.found[path] is reading:  # not that of an earlier value with this path
                updates[path] = now
            self._readings[number] = (index, now, now_facts)
        if plain and not self._read_plain(plain, updates):
            return False
        if updates:  # readings that were returned before stay as they were
            self.found = {**self.found, **updates}
        return True

    def _read_plain(self, plain: Changed, updates: dict[Path, Reading]) -> bool:
        """Read plain values; return whether each is the only value with its path."""
        if self._counts is None:
            self._counts = Counter(path for path, _ in self._places)
        for index, value in plain:
            path, _ = self._places[index]
            if self._counts[path] > 1:  # which of them is shown?
                return False
            text = repr(value)[:MAX_TEXT]
            if self.found.get(path, text) != text:  # absent after the limit of objects
                updates[path] = text
        return True


def _are_same(first: dict[Path, Reading], second: dict[Path, Reading]) -> bool:
    return first == second and list(first) == list(second)


def _is_long(value: Any) -> bool:
    return type(value) in PLAIN and isinstance(value, (str, bytes)) and len(value) > MAX_KEPT


def _has_hash(facts: TensorFacts | None) -> bool:
    """Return whether the sizes of a tensor are numbers: comparing others would specialize them."""
    try:
        hash(facts)
    except TypeError:
        return False
    return True
