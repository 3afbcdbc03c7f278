"""Clipping and loss scaling in the wrong order with the optimizer's step: hints."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.diagnose.evidence.gradient_storages_and_steps import (
    UNSCALE,
    accumulations,
    clipping_stacks,
    gradient_storages,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import BackwardStarted

_seq: Final = attrgetter("seq")
_SCALING: Final = frozenset({"mul", "mul_"})


class _Clip(NamedTuple):
    """An op that clipped gradients, with the ops that took all of them just before and after."""

    op: Op
    before: Op | None  # of an optimizer
    after: Op | None  # of an optimizer or a scaler


@rule(
    "clip-before-unscale",
    "clip-after-step",
    mechanism="order",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def clip_at_the_wrong_time(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for a line that always clips scaled gradients, or those used already."""
    by_line: dict[SourceLocation | None, list[_Clip]] = defaultdict(list)
    for clip in _clips(evidence):
        by_line[clip.op.location].append(clip)
    for line, clips in by_line.items():
        if line is None:
            continue
        if all(clip.after is not None and clip.after.name == UNSCALE for clip in clips):
            yield _scaled_draft(line, clips[0])
        elif all(clip.before is not None and clip.after is None for clip in clips):
            yield _late_draft(line, clips)


def _clips(evidence: Evidence) -> list[_Clip]:
    """Return the ops that wrote gradients to clip them."""
    clips = clipping_stacks(evidence)
    found = [
        op
        for op in evidence.analysis.ops
        if op.stack_id in clips and op.written and op.phase == "forward"
        and evidence.in_optimizer(op)
    ]  # fmt: skip
    if not found:
        return []
    clipped = {each for op in found for each in storages(op.written)}
    takers: dict[int, list[Op]] = defaultdict(list)
    for op, keys in zip(evidence.analysis.ops, evidence.causal_graph.inputs_memory, strict=True):
        if not clipped.isdisjoint(keys) and op.stack_id not in clips:
            for storage_id in clipped.intersection(keys):
                takers[storage_id].append(op)
    return [_Clip(op, *_neighbors(evidence, op, takers)) for op in found]


def _neighbors(
    evidence: Evidence, clip: Op, takers: dict[int, list[Op]]
) -> tuple[Op | None, Op | None]:
    """Return the op of an optimizer or scaler just before and after an op that clips."""
    before = after = None
    for storage_id in storages(clip.written):
        ops = takers.get(storage_id, [])
        earlier = bisect_left(ops, clip.seq, key=_seq)
        later = bisect_right(ops, clip.seq, lo=earlier, key=_seq)
        if earlier > 0 and _uses(evidence, ops[earlier - 1]):
            before = ops[earlier - 1]
        if later < len(ops) and (ops[later].name == UNSCALE or _uses(evidence, ops[later])):
            after = ops[later]
    return before, after


def _uses(evidence: Evidence, op: Op) -> bool:
    """Return whether an op of an optimizer reads a gradient to apply it."""
    zeroes = op.name in ZEROING
    return op.phase == "forward" and evidence.in_optimizer(op) and not zeroes


def _scaled_draft(line: SourceLocation, clip: _Clip) -> Draft:
    return Draft(
        slug="clip-before-unscale",
        title="Gradients are clipped before the scaler divides them by its scale",
        culprit=line,
        victim=clip.after.location if clip.after is not None else None,
        explanation=[
            "The gradients were clipped here:",
            line,
            "and divided by the scale of a GradScaler after that:",
            clip.after,
            "So max_norm was compared with a norm that is larger by the scale.",
        ],
        fix="scaler.unscale_(optimizer)\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
        "scaler.step(optimizer)",
        confidence="hint",
        evidence=(clip.op, clip.after),
    )


def _late_draft(line: SourceLocation, clips: list[_Clip]) -> Draft:
    return Draft(
        slug="clip-after-step",
        title="Gradients are clipped after the optimizer has used them",
        culprit=line,
        victim=clips[0].before.location if clips[0].before is not None else None,
        explanation=[
            "The optimizer used the gradients here:",
            clips[0].before,
            "Afterwards they were clipped, and nothing used the clipped ones:",
            line,
            f"It was so in all {len(clips)} calls." if len(clips) > 1 else "",
        ],
        fix="loss.backward()\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
        "optimizer.step()",
        confidence="hint",
        evidence=(clips[0].before, clips[0].op),
    )


@rule("scaler-without-scale", mechanism="order", when=NoError(), group="optimizer", needs={"ops"})
def scaler_without_scale(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if a scaler divides gradients whose backward started from no product."""
    analysis = evidence.analysis
    unscaled = [op for op in analysis.ops if op.name == UNSCALE]
    if not unscaled:
        return
    starts = evidence.causal_graph.backwards
    leaves: dict[int, int] = {}  # by storage of the gradient
    for tensor_id, memory in gradient_storages(evidence).items():
        leaves.update(dict.fromkeys(memory, tensor_id))
    gradients = accumulations(evidence)
    for op in unscaled:
        got = [
            event
            for storage_id in storages(op.written) & leaves.keys()
            for event in gradients[leaves[storage_id]]
            if event.seq < op.seq
        ]
        last = max(got, key=lambda event: event.seq, default=None)
        started = starts.get(last.backward_id) if last is not None else None
        roots = [analysis.graph.nodes.get(each) for each in started.root_ids] if started else []
        names = {node.op.name for node in roots if node is not None and node.op is not None}
        if started is not None and names and not names & _SCALING:
            yield _unscaled_draft(evidence, started, op)
            return


def _unscaled_draft(evidence: Evidence, started: BackwardStarted, unscale: Op) -> Draft:
    line = evidence.analysis.location(started.stack_id)
    return Draft(
        title="The gradients are divided by a scale that the loss was not multiplied by",
        culprit=line,
        victim=unscale.location,
        explanation=[
            "This backward started from a loss that no scale was multiplied with:",
            line,
            "A GradScaler divided its gradients by its scale:",
            unscale,
        ],
        fix="scaler.scale(loss).backward()",
        confidence="hint",
        evidence=(started, unscale),
    )
