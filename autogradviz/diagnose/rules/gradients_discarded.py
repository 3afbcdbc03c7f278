"""Gradients that were cleared before any optimizer used them, as in a broken accumulation."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.diagnose.blame.gradients_cleared import gradients_cleared_at
from autogradviz.diagnose.evidence.gradient_storages_and_steps import (
    gradient_adds,
    gradient_storages,
    gradients_in_use,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
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
    memory = gradient_storages(evidence)
    used = gradients_in_use(evidence, {each for found in memory.values() for each in found})
    held = set(steps[0].tensor_ids)
    if all(_discarded(evidence, *pair, held, memory, used) for pair in pairs):
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
    held: set[int],
    memory: dict[int, set[int]],
    used: set[int],
) -> bool:
    """Return whether the gradients of a backward were cleared, unused, before the next one.

    If it reached other leaves, it may have run for their gradients: an adversarial input.
    """
    if not earlier.reached.keys() <= held & later.reached.keys():
        return False
    tensors = evidence.analysis.tensors
    for tensor_id, event in earlier.reached.items():
        kept, again = memory.get(tensor_id, set()), later.reached[tensor_id]
        written = evidence.writes_between(tensors[tensor_id].storage_id, event.seq, again.seq)
        if not kept or kept & used or written:
            return False
        zeroed = any(
            op.name in ZEROING
            for storage_id in kept
            for op in evidence.writes_between(storage_id, event.seq, again.seq)
        )
        if not zeroed and _added(evidence, later, again, kept):
            return False
    return True


def _added(evidence: Evidence, later: _Backward, event: GradAccumulated, kept: set[int]) -> bool:
    """Return whether a backward added its gradient to the one that the leaf had."""
    return any(
        later.started.seq < op.seq < event.seq and storages(op.inputs) & kept
        for op in gradient_adds(evidence).get(event.node_id, ())
    )


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
