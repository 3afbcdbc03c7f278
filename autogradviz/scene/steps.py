"""The training steps of a recording."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from autogradviz.events import BackwardStarted, StepEnded
from autogradviz.scene.schema import SceneStep

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis


class Steps:
    """The steps by time. What ran after the end of the last step is a step of its own."""

    def __init__(self, analysis: Analysis) -> None:
        ended = [(event.step, event.time_ns) for event in analysis.log.of(StepEnded)]
        self._ends = [time_ns for _, time_ns in ended]
        self.rows: tuple[SceneStep, ...] = tuple(
            SceneStep(number=number, start_ns=start_ns, end_ns=end_ns)
            for (number, end_ns), start_ns in zip(ended, [0, *self._ends], strict=False)
        )
        last_ns = self._ends[-1] if self._ends else -1
        if _ran_after(analysis, last_ns):
            number = ended[-1][0] + 1 if ended else 0
            self.rows += (
                SceneStep(
                    number=number,
                    start_ns=max(0, last_ns),
                    end_ns=analysis.end_ns,
                ),
            )

    def at(self, time_ns: int) -> int:
        """Return the index of the step that was running at a time; the last one after it."""
        return min(bisect_left(self._ends, time_ns), len(self.rows) - 1)


def _ran_after(analysis: Analysis, time_ns: int) -> bool:
    """Return whether a forward op or a backward started after a time."""
    if any(op.time_ns > time_ns for op in analysis.ops[-1:]):
        return True
    return any(event.time_ns > time_ns for event in analysis.log.of(BackwardStarted)[-1:])
