"""An optimizer stepped without the gradients that backward computed for its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.diagnose.blame.gradients_cleared import gradients_cleared_at
from autogradviz.diagnose.evidence.gradient_storages_and_steps import (
    accumulations,
    between,
    gradient_storages,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import NoOptimizerFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import GradAccumulated, OptimizerStepped

_IDLE_STEPS: Final = 2
_COPYING: Final = frozenset({"clone", "copy_", "_to_copy"})


class _Lost(NamedTuple):
    """A step of an optimizer, the last gradient before it, and the op that filled it with zeros."""

    step: OptimizerStepped
    gradient: GradAccumulated
    zeroed: Op | None  # None: the gradients were removed
    reached: int  # parameters that had got a gradient


@rule("step-without-gradients", mechanism="drop", when=NoError(), group="optimizer", needs={"ops"})
def step_without_gradients(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each optimizer that had no gradients in any step that follows a backward.

    A single step for which no gradients were computed is not wrong: some call ``step`` once before
    the training, or let several optimizers take turns. If it is never different, it is a hint.
    """
    for events in _by_optimizer(evidence):
        lost = _all_lost(evidence, events)
        if lost:
            yield _draft(evidence, lost[0], len(lost))


@rule("step-without-gradients", mechanism="drop", when=NoError(), group="waste", needs={"ops"})
def optimizer_never_reached(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for each optimizer for whose tensors no backward ever computed a gradient.

    If no optimizer has the parameters that got gradients, that is reported instead.
    """
    if evidence.analysis.log.of(NoOptimizerFound):
        return
    for events in _by_optimizer(evidence):
        if _never_reached(evidence, events):
            yield _idle_draft(evidence, events)


def _by_optimizer(evidence: Evidence) -> list[list[OptimizerStepped]]:
    """Return the steps of each optimizer."""
    found: dict[tuple[int, ...], list[OptimizerStepped]] = {}
    for event in evidence.causal_graph.steps:
        found.setdefault(tuple(sorted(event.tensor_ids)), []).append(event)
    return list(found.values())


def _all_lost(evidence: Evidence, events: list[OptimizerStepped]) -> list[_Lost]:
    """Return the steps without gradients; none if any step of the optimizer had some."""
    gradients, memory = accumulations(evidence), gradient_storages(evidence)
    tensors = evidence.analysis.tensors
    written = storages(tensors[tensor_id] for tensor_id in events[0].tensor_ids)
    after, found = -1, []
    for event in events:
        got = {
            tensor_id: ours[-1]
            for tensor_id in event.tensor_ids
            if (ours := between(gradients.get(tensor_id, []), after, event.seq))
        }
        after = event.seq
        if not got:
            continue
        last = max(got.values(), key=lambda each: each.seq)
        zeroed = None
        if event.gradient_count == 0:
            first = min(each.seq for each in got.values())
            if any(evidence.writes_between(each, first, event.seq) for each in written):
                return []  # updated in hooks, or in a closure
        else:
            zeroed = _zeroed(evidence, got, memory, event)
            if zeroed is None:
                return []
        found.append(_Lost(event, last, zeroed, len(got)))
    return found


def _never_reached(evidence: Evidence, events: list[OptimizerStepped]) -> bool:
    """Return whether backwards ran, and none computed gradients for the tensors of an optimizer."""
    analysis = evidence.analysis
    if len(events) < _IDLE_STEPS or any(event.gradient_count != 0 for event in events):
        return False
    got, tensor_ids = accumulations(evidence), events[0].tensor_ids
    memory = storages(analysis.tensors[tensor_id] for tensor_id in tensor_ids)
    return (
        any(event.seq < events[-1].seq for found in got.values() for event in found)
        and not any(tensor_id in got for tensor_id in tensor_ids)
        and not any(evidence.writes_between(each, events[0].seq, 1 << 62) for each in memory)
    )


def _idle_draft(evidence: Evidence, events: list[OptimizerStepped]) -> Draft:
    name = events[0].optimizer_name
    stepped = evidence.analysis.location(events[0].stack_id)
    copy = _copy_with_gradients(evidence, events[0])
    return Draft(
        title=f"{name} steps, and none of its tensors ever got a gradient",
        culprit=copy.location if copy is not None else stepped,
        victim=stepped,
        explanation=[
            f"{name} stepped {len(events)} times:",
            stepped,
            f"None of its {len(events[0].tensor_ids)} tensors had a gradient. Backward computed "
            "gradients for "
            + (
                "copies of them, which were made here:"
                if copy is not None
                else "other tensors only: the loss does not depend on those of the optimizer, or "
                "it uses copies of them."
            ),
            copy,
        ],
        fix="# compute the loss with the model itself, or give the copy's gradients to it"
        if copy is not None
        else "# pass the parameters that the loss is computed from to the optimizer",
        confidence="hint",
        evidence=(events[0], copy),
        parameters=events[0].tensor_ids,
    )


def _copy_with_gradients(evidence: Evidence, step: OptimizerStepped) -> Op | None:
    """Return the op that copied a tensor of an optimizer into a leaf that got a gradient."""
    tensors, got = evidence.analysis.tensors, accumulations(evidence)
    held = storages(tensors[tensor_id] for tensor_id in step.tensor_ids)
    leaves = storages(tensors[tensor_id] for tensor_id in got)
    return next(
        (
            op
            for op in evidence.analysis.ops
            if op.name in _COPYING
            and op.location is not None
            and storages(op.inputs) & held
            and (storages(op.outputs) | storages(op.written)) & leaves
        ),
        None,
    )


def _zeroed(
    evidence: Evidence,
    got: dict[int, GradAccumulated],
    memory: dict[int, set[int]],
    step: OptimizerStepped,
) -> Op | None:
    """Return the op that filled all gradients with zeros after backward and before the step."""
    found = None
    for tensor_id, gradient in got.items():
        writes = [
            op
            for storage_id in memory.get(tensor_id, ())
            for op in evidence.writes_between(storage_id, gradient.seq, step.seq)
        ]
        if not any(op.name in ZEROING for op in writes):
            return None
        found = max(writes, key=lambda op: op.seq)
        if found.name not in ZEROING:
            return None
    return found


def _draft(evidence: Evidence, lost: _Lost, count: int) -> Draft:
    analysis = evidence.analysis
    stepped = analysis.location(lost.step.stack_id)
    started = evidence.backward(lost.gradient.backward_id)
    computed = analysis.location(started.stack_id) if started is not None else None
    early = _is_before(stepped, computed)
    cleared = lost.zeroed.location if lost.zeroed is not None else None
    if cleared is None and started is not None:
        cleared = gradients_cleared_at(evidence, started.stack_id, lost.step.stack_id)
    culprit = stepped if early else cleared or stepped
    name = lost.step.optimizer_name
    return Draft(
        title=f"{name} steps before backward computes the gradients of its iteration"
        if early
        else f"{name} steps without gradients: they were cleared after backward",
        culprit=culprit,
        victim=stepped,
        explanation=[
            f"Backward computed gradients for {lost.reached} of the {len(lost.step.tensor_ids)} "
            f"tensors that {name} updates:",
            computed,
            "They were filled with zeros before the step:"
            if lost.zeroed is not None
            else "They were removed before the step (.grad was None):",
            cleared or "    (on a line that was not recorded)",
            "The step had no gradients to apply:",
            stepped,
            f"The same happened in each of the {count} recorded steps." if count > 1 else "",
        ],
        fix="optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
        confidence="likely",
        evidence=(lost.gradient, lost.zeroed, lost.step),
        parameters=lost.step.tensor_ids,
    )


def _is_before(stepped: SourceLocation | None, computed: SourceLocation | None) -> bool:
    """Return whether a loop calls ``step`` on an earlier line than ``backward``."""
    if stepped is None or computed is None:
        return False
    same = (stepped.filename, stepped.function) == (computed.filename, computed.function)
    return same and stepped.lineno < computed.lineno
