"""Module calls as intervals of autograd sequence numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.events import ModuleEntered, ModuleExited

if TYPE_CHECKING:
    from autogradviz.event_log import Log


@dataclass(frozen=True, slots=True)
class CallIntervals:
    """The innermost module call at every sequence number of every thread.

    ``numbers[thread]`` ascends; from ``numbers[thread][i]`` on the innermost call is
    ``calls[thread][i]``.
    """

    numbers: dict[int, list[int]]
    calls: dict[int, list[int | None]]

    def at(self, thread: int, sequence_nr: int) -> int | None:
        """Return the innermost call whose forward created the node with this number."""
        index = bisect_right(self.numbers.get(thread, []), sequence_nr) - 1
        return None if index < 0 else self.calls[thread][index]


def read_call_intervals(log: Log) -> CallIntervals:
    """Return the module calls of all threads."""
    numbers: dict[int, list[int]] = defaultdict(list)
    calls: dict[int, list[int | None]] = defaultdict(list)
    parents: dict[int, int | None] = {}
    for event in log.merged(ModuleEntered, ModuleExited):
        if isinstance(event, ModuleEntered):
            parents[event.call_id] = event.parent_call_id
            innermost: int | None = event.call_id
        elif isinstance(event, ModuleExited):
            innermost = parents.get(event.call_id)
        else:
            continue
        so_far = numbers[event.thread]
        # Numbers only grow on a thread; a hostile file may say otherwise.
        so_far.append(max(event.sequence_nr, so_far[-1]) if so_far else event.sequence_nr)
        calls[event.thread].append(innermost)
    return CallIntervals(dict(numbers), dict(calls))
