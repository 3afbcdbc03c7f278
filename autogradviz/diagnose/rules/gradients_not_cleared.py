"""Gradients that were not cleared after an optimizer used them: the next backward adds to them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.gradient_storages_and_steps import (
    accumulations,
    between,
    clipping_stacks,
    gradient_adds,
    gradient_reads,
    gradient_storages,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import GradAccumulated

_SUMS: Final = 2  # uses of a sum: one may be meant


class _Sum(NamedTuple):
    """A gradient that was added to one which an optimizer had used."""

    used: Op
    gradient: GradAccumulated
    again: Op  # the op of the optimizer that used the sum


@rule(
    "gradients-not-cleared",
    mechanism="mix",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def gradients_not_cleared(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if the gradients of some leaves contain, at each use, those of the last use."""
    memory = gradient_storages(evidence)
    got = {tensor_id: events for tensor_id, events in accumulations(evidence).items() if events[1:]}
    uses = _uses(evidence, {each for tensor_id in got for each in memory.get(tensor_id, ())})
    adds = gradient_adds(evidence)
    found = {}
    for tensor_id, events in got.items():
        ours = memory.get(tensor_id, set())
        sums = list(_again(uses, events, ours))
        if len(sums) >= _SUMS and all(_is_sum(evidence, adds, each, events, ours) for each in sums):
            found[tensor_id] = sums
    if found:
        yield _draft(evidence, found)


def _uses(evidence: Evidence, gradients: set[int]) -> dict[int, list[Op]]:
    """Return the ops of optimizers that read each storage of a gradient, oldest first.

    Clipping does not count, nor do ops that write gradients, as those of ``zero_grad``.
    """
    reads, clips = gradient_reads(evidence), clipping_stacks(evidence)
    return {
        storage_id: [
            op
            for op in reads[storage_id]
            if evidence.in_optimizer(op)
            and op.stack_id not in clips
            and not (op.written and storages(op.written) & gradients)
        ]
        for storage_id in gradients & reads.keys()
    }


def _again(
    uses: dict[int, list[Op]], events: list[GradAccumulated], memory: set[int]
) -> Iterator[_Sum]:
    """Yield each last use of a gradient, the first gradient after it, and the first use of that."""
    ops = sorted({op.seq: op for each in memory for op in uses.get(each, ())}.items())
    seqs = [seq for seq, _ in ops]
    for event in events:
        position = bisect_left(seqs, event.seq)
        if 0 < position < len(ops) and not between(events, seqs[position - 1], event.seq):
            yield _Sum(ops[position - 1][1], event, ops[position][1])


def _is_sum(
    evidence: Evidence,
    adds: dict[int, list[Op]],
    found: _Sum,
    events: list[GradAccumulated],
    memory: set[int],
) -> bool:
    """Return whether all gradients between two uses were added to the one of the first use."""
    start, end = found.used.seq, found.again.seq
    adding = set()
    before = start  # the gradient before, to which an op of an earlier backward added
    for event in between(events, start, end):
        ours = [op for op in adds.get(event.node_id, ()) if before < op.seq < event.seq]
        before = event.seq
        if not any(storages(op.inputs) & memory for op in ours):
            return False  # it had been removed
        adding |= {op.seq for op in ours}
    return not any(
        op.seq not in adding and op.stack_id not in clipping_stacks(evidence)
        for storage_id in memory
        for op in evidence.writes_between(storage_id, start, end)
        if op.phase == "forward"
    )


def _draft(evidence: Evidence, found: dict[int, list[_Sum]]) -> Draft:
    analysis = evidence.analysis
    first = min((each for sums in found.values() for each in sums), key=lambda e: e.used.seq)
    started = evidence.backward(first.gradient.backward_id)
    computed = analysis.location(started.stack_id) if started is not None else None
    closure = started is not None and analysis.in_optimizer(started.stack_id)
    stepped = first.used.location
    count = max(map(len, found.values()))
    return Draft(
        title="Gradients that a step has used are not cleared: the next backward adds to them",
        culprit=computed if closure else stepped,
        victim=stepped if closure else computed,
        explanation=[
            f"{join_names([evidence.analysis.leaf_name(each) for each in found])}: "
            "the optimizer used the gradient here:",
            stepped,
            "It was still there when "
            + ("the closure of this step" if closure else "backward")
            + " computed the next one, which was added to it:",
            computed,
            f"The next use was of the sum. It was so all {count} times.",
        ],
        fix="optimizer.zero_grad()  # in the closure, before the loss is computed"
        if closure
        else "optimizer.step()\noptimizer.zero_grad()",
        confidence="hint",
        evidence=(first.used, first.gradient, first.again),
        parameters=found,
    )
