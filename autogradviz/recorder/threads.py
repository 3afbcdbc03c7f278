"""What the recorder knows about each thread while it records."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from autogradviz.recorder.engine.node_tag import NodeTag


Running: TypeAlias = tuple[int, int, "NodeTag", bool]
"""A node that runs: backward, node, its tag, whether it was given a gradient."""


class ThreadState:
    """Where one thread stands: which module, region, recomputation and node it is in."""

    __slots__ = (
        "__weakref__",
        "calls",
        "follows",
        "marks",
        "modules",
        "number",
        "regions",
        "running",
        "sequence_nr",
    )

    def __init__(self, number: int, sequence_nr: int) -> None:
        self.number = number
        self.sequence_nr = sequence_nr  # autograd's counter when it was last looked at
        self.calls: list[int] = []  # open module calls
        self.modules: list[int] = []  # their modules
        self.marks: list[tuple[FrameType, int]] = []  # frames that stay, and what called them
        self.regions: list[tuple[int | None, int | None]] = []  # (region, recomputation)
        self.running: list[Running] = []
        self.follows = False  # gradients were on where the innermost reentrant region was called

    @property
    def region(self) -> tuple[int | None, int | None]:
        """The innermost region and recomputation."""
        return self.regions[-1] if self.regions else (None, None)


class _Local(threading.local):
    """What each thread has to itself: made when the thread first asks."""

    def __init__(self, table: ThreadTable) -> None:
        self.state = table.new()


class ThreadTable:
    """One state a thread, numbered in the order of appearance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._states: WeakSet[ThreadState] = WeakSet()  # a thread's own dies with it
        self.local = _Local(self)

    def state(self) -> ThreadState:
        """Return the calling thread's state; where it counts, ``local.state`` is a call less."""
        return self.local.state

    def new(self) -> ThreadState:
        """Return a state for a thread that has none."""
        with self._lock:
            state = ThreadState(self._count, torch._C._autograd._get_sequence_nr())  # noqa: SLF001
            self._count += 1
            self._states.add(state)
        return state

    def __iter__(self) -> Iterator[ThreadState]:
        return iter(list(self._states))
