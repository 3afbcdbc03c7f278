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
    for kind, thread, sequence_nr, call_id, parent_call_id in log.merged_fields(
        (ModuleEntered, ModuleExited), "thread", "sequence_nr", "call_id", "parent_call_id"
    ):
        if kind is ModuleEntered:
            parents[call_id] = parent_call_id
        so_far = numbers[thread]
        # Numbers only grow on a thread; a hostile file may say otherwise.
        so_far.append(max(sequence_nr, so_far[-1]) if so_far else sequence_nr)
        calls[thread].append(call_id if kind is ModuleEntered else parents.get(call_id))
    return CallIntervals(dict(numbers), dict(calls))
