"""The training steps of a recording, as its readers count them.

NOTE [ Rounds of several optimizers ]
The recorder ends a step whenever an optimizer has stepped after a backward, since it cannot know
what follows. A loop that steps several optimizers, such as that of a GAN, ends two or more of these
in each round. Which tensors each of them updated is recorded, so a round is the shortest sequence
that repeats, if it repeats or if its optimizers share no tensor. Where older steps were dropped, it
is unknown with which of them a round begins, and the steps are those of the recorder.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from autogradviz.events import BackwardStarted, NormRead, OptimizerStepped, StepEnded
from autogradviz.scene.schema import SceneStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

MIN_STEPS: Final = 2

MAX_ROUND: Final = 64
"""Maximum number of steps of optimizers in a round."""


class Steps:
    """The steps by time. A forward or backward after the last step is a step of its own."""

    def __init__(self, analysis: Analysis) -> None:
        events = analysis.log.of(StepEnded)
        last_ns = events[-1].time_ns if events else -1
        first = events[0].step if events else 0
        length = 1 if first else _round_length(_updated(analysis, events))
        ends = [events[at].time_ns for at in range(length - 1, len(events), length)]
        if _ran_after(analysis, last_ns):
            ends.append(analysis.end_ns)
        elif len(events) % length:
            ends.append(last_ns)
        ended = list(enumerate(ends, first))
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


def _updated(analysis: Analysis, events: Sequence[StepEnded]) -> list[frozenset[int]]:
    """Return the tensors that optimizers updated in each step of the recorder."""
    ends = [event.time_ns for event in events]
    found: list[set[int]] = [set() for _ in events]
    for time_ns, tensor_ids in analysis.log.fields(OptimizerStepped, "time_ns", "tensor_ids"):
        at = bisect_left(ends, time_ns)
        if at < len(found):
            found[at].update(tensor_ids)
    return [frozenset(each) for each in found]


def _round_length(updated: Sequence[frozenset[int]]) -> int:
    """Return the number of steps in a round; see NOTE [ Rounds of several optimizers ]."""
    count = len(updated)
    if not all(updated) or len(set(updated)) == 1:
        return 1
    for length in range(2, min(count, MAX_ROUND) + 1):
        round_ = updated[:length]
        if any(updated[at] != updated[at - length] for at in range(length, count)):
            continue
        distinct = sum(map(len, round_)) == len(frozenset().union(*round_))
        if distinct or 2 * length <= count:
            return length
    return 1


def _ran_after(analysis: Analysis, time_ns: int) -> bool:
    """Return whether a forward or a backward started later; reading the loss is neither."""
    for op in reversed(analysis.ops):
        if op.time_ns <= time_ns:
            break
        if op.sequence_nr is not None and not analysis.in_optimizer(op.stack_id):
            return True
    return any(event.time_ns > time_ns for event in analysis.log.of(BackwardStarted)[-1:])
