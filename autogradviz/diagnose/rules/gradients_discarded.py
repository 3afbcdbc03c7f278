"""Gradients that were cleared before any optimizer used them, as in a broken accumulation."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.blame.gradients_cleared import gradients_cleared_at
from autogradviz.diagnose.evidence.gradient_lives import gradient_lives, leaves_in_use
from autogradviz.diagnose.evidence.gradient_storages_and_steps import (
    gradient_storages,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import BackwardStarted, GradAccumulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import OptimizerStepped

_WINDOWS: Final = 2  # steps: one batch may be skipped on purpose


class _Backward(NamedTuple):
    """The leaves that one backward reached, with the event of each."""

    started: BackwardStarted
    reached: dict[int, GradAccumulated]


@rule(
    "gradients-discarded",
    mechanism="drop",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def gradients_discarded(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if each step of a single optimizer had only the gradients of its last backward.

    With several optimizers, gradients that one of them discards may belong to another one's loss.
    """
    steps = evidence.causal_graph.steps
    if len({event.tensor_ids for event in steps}) != 1:
        return
    windows = _windows(evidence, steps)
    pairs = [pair for window in windows for pair in pairwise(window)]
    if len(windows) < _WINDOWS or not all(len(window) > 1 for window in windows):
        return
    known = {leaf for leaf, memory in gradient_storages(evidence).items() if memory}
    known -= leaves_in_use(evidence)
    lives = gradient_lives(evidence)
    dropped = {(each, part.backward_id) for each in known & lives.keys()
               for part, _ in lives[each].dropped}  # fmt: skip
    if all(_discarded(evidence, *pair, dropped) for pair in pairs):
        yield _draft(evidence, *pairs[0], steps[0], len(windows[0]))


def _windows(evidence: Evidence, steps: list[OptimizerStepped]) -> list[list[_Backward]]:
    """Return the backwards before each step that reached any leaf."""
    log = evidence.analysis.log
    reached: dict[int, dict[int, GradAccumulated]] = defaultdict(dict)
    for event in log.of(GradAccumulated):
        reached[event.backward_id][event.tensor_id] = event
    backwards = [_Backward(e, reached[e.backward_id]) for e in log.of(BackwardStarted)]
    backwards = [backward for backward in backwards if backward.reached]
    seqs = [backward.started.seq for backward in backwards]
    ends = [bisect_left(seqs, step.seq) for step in steps]
    return [backwards[i:j] for i, j in pairwise([0, *ends])]


def _discarded(
    evidence: Evidence,
    earlier: _Backward,
    later: _Backward,
    dropped: set[tuple[int, int]],
) -> bool:
    """Return whether the gradients of a backward were cleared, unused, before the next one.

    If it reached other leaves, it may have run for their gradients: an adversarial input.
    """
    if not earlier.reached.keys() <= later.reached.keys():
        return False
    tensors = evidence.analysis.tensors
    for tensor_id, event in earlier.reached.items():
        again = later.reached[tensor_id]
        written = evidence.writes_between(tensors[tensor_id].storage_id, event.seq, again.seq)
        if written or (tensor_id, event.backward_id) not in dropped:
            return False
    return True


def _draft(
    evidence: Evidence, earlier: _Backward, later: _Backward, step: OptimizerStepped, count: int
) -> Draft:
    analysis = evidence.analysis
    cleared = gradients_cleared_at(evidence, earlier.started.stack_id, later.started.stack_id)
    computed = analysis.location(earlier.started.stack_id)
    stepped = analysis.location(step.stack_id)
    return Draft(
        title=f"Only the last of {count} backward passes has an effect on each step: the gradients "
        "of the others were cleared",
        culprit=cleared or computed,
        victim=computed,
        explanation=[
            f"{count} backward passes ran before a step of {step.optimizer_name}:",
            computed,
            stepped,
            "Each replaced the gradients of the one before instead of adding to them, because "
            "they were cleared in between:",
            cleared or "    (on a line that was not recorded)",
            "No operator had used them.",
        ],
        fix="optimizer.step()\noptimizer.zero_grad()  # once for each step",
        confidence="hint",
        evidence=(next(iter(later.reached.values())), step),
        parameters=earlier.reached,
    )
