"""The saved tensors that dropped steps hold, for example because a list keeps their losses.

Only saves that are still held are known to the engine, so a step that releases everything leaves
nothing here. Saves through hooks are not counted: what holds them is known to the hooks.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from autogradviz.events import ParameterSeen, TensorSaved, TensorSeen

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import Log

_MANY: Final = 4_096  # steps from which on those that hold nothing are forgotten


class StepSaves:
    """The saves at which steps ended."""

    def __init__(self, held_saves: Callable[[], dict[int, int]]) -> None:
        """Take the function that returns the saves that are held, each with its tensor."""
        self._held_saves = held_saves
        self._ends: list[int] = []  # for each step the first save after it, in ascending order
        self._forget_at = _MANY

    def step_ended(self, saved_count: int) -> None:
        """Remember the number of saves so far."""
        self._ends.append(saved_count)
        if len(self._ends) >= self._forget_at:
            # A step without saves becomes a part of the next one.
            self._ends = [self._ends[step] for step in sorted(self._steps_of(self._held_saves()))]
            self._forget_at = 2 * len(self._ends) + _MANY

    def _steps_of(self, saves: dict[int, int]) -> set[int]:
        """Return the places of the steps that made some saves; the last step is not over."""
        places = {bisect_right(self._ends, saved_id) for saved_id in saves}
        places.discard(len(self._ends))
        return places

    def older_held(self, log: Log) -> tuple[int, int] | None:
        """Return the bytes that steps hold which are not in a log, and the number of these steps.

        A storage that a step in the log holds too is not counted, nor are parameters and buffers.
        """
        in_log = {saved_id for (saved_id,) in log.fields(TensorSaved, "saved_id")}
        held = self._held_saves()
        older = {each: tensor for each, tensor in held.items() if each not in in_log}
        if not older:
            return None
        tensors = {
            tensor_id: (storage_id, nbytes)
            for tensor_id, storage_id, nbytes in log.fields(
                TensorSeen, "tensor_id", "storage_id", "storage_nbytes"
            )
        }
        counted = [tensor for each, tensor in held.items() if each in in_log]
        counted += [tensor for (tensor,) in log.fields(ParameterSeen, "tensor_id")]
        others = {tensors[tensor][0] for tensor in counted if tensor in tensors}
        holding = {
            each: tensors[tensor]
            for each, tensor in older.items()
            if tensor in tensors and tensors[tensor][0] not in others | {None}
        }
        steps = len({bisect_right(self._ends, each) for each in holding})
        return (sum(dict(holding.values()).values()), steps) if holding else None
