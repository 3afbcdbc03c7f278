"""The training steps of a recording."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from autogradviz.events import BackwardStarted, NormRead, StepEnded
from autogradviz.scene.schema import SceneStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

MIN_STEPS: Final = 2


class Steps:
    """The steps by time. What ran after the end of the last step is a step of its own."""

    def __init__(self, analysis: Analysis) -> None:
        ended = [(event.step, event.time_ns) for event in analysis.log.of(StepEnded)]
        last_ns = ended[-1][1] if ended else -1
        if _ran_after(analysis, last_ns):
            ended.append((ended[-1][0] + 1 if ended else 0, analysis.end_ns))
        self._ends = [time_ns for _, time_ns in ended]
        losses = self._loss_norms(analysis)
        self.rows: tuple[SceneStep, ...] = tuple(
            SceneStep(number=number, start_ns=start_ns, end_ns=end_ns, loss_norm=losses.get(at))
            for at, ((number, end_ns), start_ns) in enumerate(
                zip(ended, [0, *self._ends], strict=False)
            )
        )

    def _loss_norms(self, analysis: Analysis) -> dict[int, float | None]:
        """Return the norm of the last root of backward of each step, by the step's index."""
        starts = dict(analysis.log.fields(BackwardStarted, "backward_id", "time_ns"))
        return {
            self.at(starts[event.backward_id]): event.norm
            for event in analysis.log.of(NormRead)
            if event.place == "root" and event.backward_id in starts
        }

    def at(self, time_ns: int) -> int:
        """Return the index of the step that was running at a time; the last one after it."""
        return min(bisect_left(self._ends, time_ns), len(self._ends) - 1)

    def of_nodes(self, nodes: Sequence[Node]) -> list[int | None]:
        """Return the numbers of the steps that created nodes, None where it is unknown.

        Args:
            nodes: nodes in the order of their creation.
        """
        if len(self.rows) < MIN_STEPS:
            return [None] * len(nodes)
        found: list[int | None] = []
        for node in nodes:
            if node.op is not None:
                found.append(self.rows[self.at(node.op.time_ns)].number)
            else:  # nodes without an op are few: that of the node before
                found.append(found[-1] if found else None)
        return found


def _ran_after(analysis: Analysis, time_ns: int) -> bool:
    """Return whether an op, apart from those of the optimizer, or a backward started later."""
    for op in reversed(analysis.ops):
        if op.time_ns <= time_ns:
            break
        if not analysis.in_optimizer(op.stack_id):
            return True
    return any(event.time_ns > time_ns for event in analysis.log.of(BackwardStarted)[-1:])
