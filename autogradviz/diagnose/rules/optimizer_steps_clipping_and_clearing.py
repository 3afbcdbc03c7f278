"""Rules: clipping, scaling, clearing and steps that do not fit the backwards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.analysis.formatting import short_location
from autogradviz.diagnose.blame.gradients_lost import clearing_of, gradients_cleared_at
from autogradviz.diagnose.blame.search_gradient_cuts import ends_of_paths
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    UNSCALE,
    accumulations,
    clipping_stacks,
    gradient_lives,
    gradient_storages,
    gradients_of_backwards,
    gradients_of_steps,
    is_in_closure,
    leaves_in_use,
    next_uses,
    zeroed_by,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import NOT_RECORDED, describe_tensor, join_names
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.parameters_replaced_after_optimizer import optimizer_lines
from autogradviz.diagnose.source.source_index import in_other_branch
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    GradAccumulated,
    NoOptimizerFound,
    OptimizerStepped,
    RequiresGradChanged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
        GradientPart,
        NextUse,
        StepGradients,
    )


# --- clipping that found no gradients: a hint -----------------------------------------------------


_MAKE_ZERO: Final = frozenset({"lift_fresh", "detach_"})
"""The ops of ``torch.tensor(0.0)``, the norm of no gradients."""


@rule(
    "clip-without-gradients",
    mechanism="order",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def clip_without_gradients(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for a line whose calls of ``clip_grad_norm_`` all found no gradients."""
    if not accumulations(evidence):
        return
    by_line: dict[SourceLocation | None, list[Op]] = defaultdict(list)
    clips = clipping_stacks(evidence)
    for op in evidence.analysis.ops if clips else ():
        if op.stack_id in clips:
            by_line[op.location].append(op)
    for line, ops in by_line.items():
        if line is not None and all(op.name in _MAKE_ZERO for op in ops):
            yield _clipped_nothing(line, ops)


def _clipped_nothing(line: SourceLocation, ops: list[Op]) -> Draft:
    count = sum(op.name == "lift_fresh" for op in ops)
    return Draft(
        title="clip_grad_norm_ found no gradients, and clipped nothing",
        culprit=line,
        victim=None,
        explanation=[
            "None of the parameters that it got had a gradient here"
            + (f", in each of its {count} calls:" if count > 1 else ":"),
            line,
            "Backward did compute gradients in this recording: after this line, or for other "
            "parameters. A generator of parameters can be used only once.",
        ],
        fix="loss.backward()\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
        "optimizer.step()",
        confidence="hint",
        evidence=(ops[0],),
    )


# --- clipping and loss scaling in the wrong order with the optimizer's step: hints ----------------


_seq: Final = attrgetter("seq")
_SCALING: Final = frozenset({"mul", "mul_"})
_BOUNDING: Final = frozenset({"clamp", "clamp_", "clamp_min", "clamp_max", "hardtanh", "renorm"})
"""Ops by which hooks clip."""


class _Clip(NamedTuple):
    """An op that clipped gradients, with the ops that took all of them just before and after."""

    op: Op
    before: Op | None  # of an optimizer
    after: Op | None  # of an optimizer or a scaler


@rule(
    "clip-before-unscale",
    "clip-after-step",
    "clip-while-accumulating",
    mechanism="order",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def clip_at_the_wrong_time(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for a line that clips scaled gradients, used ones, or parts of a sum."""
    by_line: dict[SourceLocation | None, list[_Clip]] = defaultdict(list)
    parts = _clipped_parts(evidence)
    for clip in _clips(evidence):
        by_line[clip.op.location].append(clip)
    for place, clamps in _clamped_in_hooks(evidence).items():
        yield _scaled_draft(place, clamps[0])
    for line, clips in by_line.items():
        if line is None:
            continue
        if all(clip.after is not None and clip.after.name == UNSCALE for clip in clips):
            yield _scaled_draft(line, clips[0])
        elif all(clip.before is not None and clip.after is None for clip in clips):
            yield _late_draft(line, clips)
        elif len(parts[line]) >= _WINDOWS:
            yield _inside_draft(evidence, line, parts[line])


def _clipped_parts(evidence: Evidence) -> dict[SourceLocation | None, dict[int, GradientPart]]:
    """Return, by line that clips, the backwards that added to what it had clipped, by id."""
    memory = gradient_storages(evidence)
    clips = clipping_stacks(evidence)
    found: dict[SourceLocation | None, dict[int, GradientPart]] = defaultdict(dict)
    for leaf, life in gradient_lives(evidence).items() if clips else ():
        for window in life.windows:
            for part, later in pairwise(window):
                writes = (op for each in memory.get(leaf, ())
                          for op in evidence.writes_between(each, part.seq, later.seq))  # fmt: skip
                for op in writes:
                    if op.stack_id in clips and op.phase == "forward":
                        found[op.location].setdefault(later.backward_id, later)
    return found


def _line_below(
    evidence: Evidence, stack_id: int | None, caller: int | None
) -> SourceLocation | None:
    """Return the user's line in a stack that is next to those of its caller: of a hook, a closure.

    Args:
        evidence: the recording.
        stack_id: the stack.
        caller: the stack of the call of PyTorch that called the user's function.
    """
    stack = evidence.analysis.user_stack(stack_id)[::-1]
    callers = evidence.analysis.user_stack(caller)[::-1]
    pairs = zip(stack, callers, strict=False)
    shared = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(stack), len(callers)))
    return stack[shared] if shared < len(stack) else None


def _clamped_in_hooks(evidence: Evidence) -> dict[SourceLocation, list[_Clip]]:
    """Return, by line, what hooks of leaves bound before a scaler divides it by its scale."""
    analysis, graph = evidence.analysis, evidence.causal_graph
    unscaled = [op for op in analysis.ops if op.name == UNSCALE]
    found: dict[SourceLocation, list[_Clip]] = defaultdict(list)
    gradients = {s for memory in gradient_storages(evidence).values() for s in memory}
    for index, op in enumerate(analysis.ops) if unscaled else ():
        if op.phase != "backward" or op.name not in _BOUNDING or not graph.is_users(index):
            continue
        made = (storages(op.outputs) | storages(op.written)) & gradients
        after = next((e for e in unscaled if e.seq > op.seq and storages(e.written) & made), None)
        started = graph.backward_of(index)
        if after is not None and started is not None:
            place = _line_below(evidence, op.stack_id, started.stack_id) or op.location
            if place is not None:
                found[place].append(_Clip(op, None, after))
    return found


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


def _inside_draft(
    evidence: Evidence, line: SourceLocation, parts: dict[int, GradientPart]
) -> Draft:
    added = next(iter(parts.values()))
    started = evidence.backward(added.backward_id)
    return Draft(
        slug="clip-while-accumulating",
        title="Gradients are clipped before another backward of the same step adds to them",
        culprit=line,
        victim=evidence.backward_line(added.backward_id),
        explanation=[
            "The gradients were clipped here:",
            line,
            "and this backward added to them before the step:",
            evidence.backward_line(added.backward_id),
            f"It was so before {len(parts)} backwards. The norm of the sum may be larger than "
            "max_norm.",
        ],
        fix="if last_of_step:\n"
        "    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
        "    optimizer.step()",
        confidence="hint",
        evidence=(added.seq, started),
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


# --- gradients that were cleared before any optimizer used them, as in a broken accumulation ------


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
    if len(evidence.causal_graph.steps_of_optimizers) != 1:
        return
    steps = evidence.causal_graph.steps
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
        yield _discarded_gradients(evidence, *pairs[0], steps[0], len(windows[0]))


def _windows(evidence: Evidence, steps: list[OptimizerStepped]) -> list[list[_Backward]]:
    """Return the backwards before each step that reached any leaf."""
    reached = gradients_of_backwards(evidence)
    started = evidence.analysis.log.of(BackwardStarted)
    backwards = [_Backward(e, reached[e.backward_id]) for e in started if e.backward_id in reached]
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


def _discarded_gradients(
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
            cleared or NOT_RECORDED,
            "No operator had used them.",
        ],
        fix="optimizer.step()\noptimizer.zero_grad()  # once for each step"
        + ("" if cleared is None else f", {_moved(cleared)}"),
        confidence="hint",
        evidence=(next(iter(later.reached.values())), step),
        parameters=earlier.reached,
    )


# --- gradients not cleared ------------------------------------------------------------------------
#
# Gradients that were not cleared after an optimizer used them: the next backward adds to them.


_SUMS: Final = 2  # uses of a sum, and more than half of all: one may be meant


@rule(
    "gradients-not-cleared",
    mechanism="mix",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def gradients_not_cleared(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if the gradients of some leaves contain, at most uses, those of the last use.

    Some programs clear them once in an epoch.
    """
    found: dict[int, list[NextUse]] = {}
    times = {0: 0}
    for leaf, uses in next_uses(evidence).items():
        sums = [each for each in uses if each.is_sum]
        known = not any(isinstance(each.used, OptimizerStepped) for each in uses)
        if known and len(sums) >= max(_SUMS, len(uses) // 2 + 1):
            found[leaf] = sums
            times[len(sums)] = max(len(uses), times.get(len(sums), 0))
    if found:
        yield _rarely_cleared(evidence, found, times)


def _rarely_cleared(
    evidence: Evidence, found: dict[int, list[NextUse]], times: dict[int, int]
) -> Draft:
    first = min((each for sums in found.values() for each in sums), key=lambda e: e.used.seq)
    computed = evidence.backward_line(first.gradient.backward_id)
    closure = is_in_closure(evidence, first.gradient.backward_id)
    stepped = evidence.analysis.location(first.used.stack_id)
    started = evidence.backward(first.gradient.backward_id)
    if closure and started is not None:
        computed = _line_below(evidence, started.stack_id, first.used.stack_id) or computed
    count = max(map(len, found.values()))
    elsewhere = clearing_of(stepped) if stepped is not None and not closure else None
    missed = elsewhere and stepped and in_other_branch(stepped, elsewhere)
    return Draft(
        title="Gradients that a step has used are not cleared: the next backward adds to them",
        culprit=computed if closure else elsewhere if missed else stepped,
        victim=stepped if closure else computed,
        explanation=[
            f"{join_names([evidence.analysis.leaf_name(each) for each in found])}: "
            "the optimizer used the gradient here:",
            stepped,
            "It was still there when "
            + ("the closure of this step" if closure else "backward")
            + " computed the next one, which was added to it:",
            computed,
            f"The next use was of the sum. It was so in {count} of {times[count]} steps that "
            "follow another one.",
            "They are cleared here, which did not run between the two:" if elsewhere else "",
            elsewhere,
        ],
        fix="optimizer.zero_grad()  # in the closure, before the loss is computed"
        if closure
        else f"optimizer.step()\noptimizer.zero_grad()  # {_moved(elsewhere)}",
        confidence="hint",
        evidence=(first.used, first.gradient, first.again),
        parameters=found,
    )


# --- an optimizer stepped without the gradients that backward computed for its parameters ---------


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
    for steps in gradients_of_steps(evidence):
        lost = _all_lost(evidence, steps)
        if lost:
            yield _step_without_gradients(evidence, lost[0], len(lost))


@rule("step-without-gradients", mechanism="drop", when=NoError(), group="waste", needs={"ops"})
def optimizer_never_reached(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for each optimizer with tensors that none of its steps can update.

    They require no gradient, and are no frozen parameters of a module; or no backward ever computed
    a gradient for any of its tensors. If no optimizer has the parameters that got gradients, that
    is reported instead.
    """
    forgotten = bool(evidence.analysis.log.of(NoOptimizerFound))
    for steps in gradients_of_steps(evidence):
        events = [each.step for each in steps]
        frozen = _frozen(evidence, events)
        if frozen:
            yield _frozen_draft(evidence, events, frozen)
        elif not forgotten and _never_reached(evidence, steps):
            yield _idle_draft(evidence, events)


def _all_lost(evidence: Evidence, steps: list[StepGradients]) -> list[_Lost]:
    """Return the steps without gradients; none if any step of the optimizer had some."""
    tensors = evidence.analysis.tensors
    written = storages(tensors[tensor_id] for tensor_id in steps[0].step.tensor_ids)
    found = []
    for each_step in steps:
        event, got = each_step
        if not got:
            continue
        last = max(got.values(), key=_seq)
        zeroed = None
        if each_step.is_empty:
            first = min(each.seq for each in got.values())
            if any(evidence.writes_between(each, first, event.seq) for each in written):
                return []  # updated in hooks, or in a closure
        else:
            ops = [zeroed_by(evidence, leaf, each.seq, event.seq) for leaf, each in got.items()]
            zeroed = ops[-1]
            if None in ops:
                return []
        found.append(_Lost(event, last, zeroed, len(got)))
    return found


def _frozen(evidence: Evidence, events: list[OptimizerStepped]) -> list[int]:
    """Return the tensors of an optimizer that required no gradient in any step, by mistake.

    Parameters, and tensors that the program froze, are left out. A detached copy has the id of its
    original: that got gradients, although no step had any.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    frozen = graph.frozen_in_steps
    if not all(event.seq in frozen for event in events):
        return []
    always = set.intersection(*(set(frozen[event.seq].plain_tensor_ids) for event in events))
    got = accumulations(evidence)
    trains = any(found[0].seq < events[-1].seq for found in got.values())
    if not always or not trains or len(events) < _IDLE_STEPS:
        return []
    log = analysis.log
    meant = set(log.column(RequiresGradChanged, "tensor_id"))
    meant |= {each for event in log.of(NoOptimizerFound) for each in event.tensor_ids}
    meant |= graph.requires_grad.keys() - got.keys()
    return [
        each
        for each in events[0].tensor_ids
        if each in always - meant
        and not evidence.writes_between(analysis.tensors[each].storage_id, events[0].seq, 1 << 62)
    ]


def _frozen_draft(evidence: Evidence, events: list[OptimizerStepped], frozen: list[int]) -> Draft:
    analysis, name = evidence.analysis, events[0].optimizer_name
    stepped = analysis.location(events[0].stack_id)
    copies = [each for each in frozen if each in accumulations(evidence)]
    chosen = copies or frozen
    creator = analysis.creators.get(analysis.tensors[chosen[0]].storage_id or NO_ID)
    made = creator.location if creator is not None else None
    lines = optimizer_lines(evidence.user_files, {name}, analysis.user_stack(events[0].stack_id))
    line = lines[0] if len(lines) == 1 else None
    one = len(chosen) == 1
    return Draft(
        title=f"{name} never changes {_of_all(len(chosen), len(events[0].tensor_ids))}: "
        f"{'it requires' if one else 'they require'} no gradient",
        culprit=(line or made if copies else made or line) or stepped,
        victim=stepped,
        explanation=[
            f"{name} stepped {len(events)} times:",
            stepped,
            f"{join_names([describe_tensor(analysis.tensors[each]) for each in chosen])}: "
            "required no gradient in any step, and had none."
            + (" The memory was made here:" if made is not None else ""),
            made,
            "Backward computes gradients for another tensor in the same memory, such as the one "
            "that was detached."
            if copies
            else "Nothing else writes to it.",
        ],
        fix="# pass the tensor itself to the optimizer, not detach() or .data of it"
        if copies
        else "torch.zeros(..., requires_grad=True)  # or torch.nn.Parameter(...)",
        confidence="hint",
        evidence=(events[0],),
        parameters=chosen,
    )


def _of_all(some: int, count: int) -> str:
    if some == count:
        return "its only tensor" if count == 1 else f"any of its {count} tensors"
    return f"{some} of its {count} tensors"


def _never_reached(evidence: Evidence, steps: list[StepGradients]) -> bool:
    """Return whether backwards ran, and none computed gradients for the tensors of an optimizer."""
    analysis = evidence.analysis
    if len(steps) < _IDLE_STEPS or not all(each.is_empty for each in steps):
        return False
    first, last, got = steps[0].step, steps[-1].step, accumulations(evidence)
    memory = storages(analysis.tensors[tensor_id] for tensor_id in first.tensor_ids)
    return (
        any(event.seq < last.seq for found in got.values() for event in found)
        and not any(tensor_id in got for tensor_id in first.tensor_ids)
        and not any(evidence.writes_between(each, first.seq, 1 << 62) for each in memory)
        and not _explained_by_cuts(evidence, first)
    )


def _explained_by_cuts(evidence: Evidence, step: OptimizerStepped) -> bool:
    """Return whether lines that cut gradients are found for all that a step can update."""
    graph, ends = evidence.causal_graph, ends_of_paths(evidence)
    updated = graph.updated_in(step)
    return bool(updated) and all(
        tensor_id in ends
        and not ends[tensor_id][0].passed
        and tensor_id in graph.parameters
        and any(tensor_id in graph.updated_after(each) for each in ends[tensor_id][0].readers)
        for tensor_id in updated
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
                else "other tensors only: those of the optimizer require none."
                if not any(map(evidence.causal_graph.updated_in, events))
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


def _step_without_gradients(evidence: Evidence, lost: _Lost, count: int) -> Draft:
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
            cleared or NOT_RECORDED,
            "The step had no gradients to apply:",
            stepped,
            f"The same happened in each of the {count} recorded steps." if count > 1 else "",
        ],
        fix=f"optimizer.zero_grad()  # {'before backward' if early else _moved(cleared)}\n"
        f"loss.backward()\noptimizer.step()  # {_moved(stepped) if early else 'after backward'}",
        confidence="likely",
        evidence=(lost.gradient, lost.zeroed, lost.step),
        parameters=lost.step.tensor_ids,
    )


def _moved(line: SourceLocation | None) -> str:
    """Return the place of the line that exists, and is to be moved."""
    return "before the next backward" if line is None else f"moved here from {short_location(line)}"


def _is_before(stepped: SourceLocation | None, computed: SourceLocation | None) -> bool:
    """Return whether a loop calls ``step`` on an earlier line than ``backward``."""
    if stepped is None or computed is None:
        return False
    same = (stepped.filename, stepped.function) == (computed.filename, computed.function)
    return same and stepped.lineno < computed.lineno
