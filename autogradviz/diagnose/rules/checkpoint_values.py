"""Rules: a recomputation that computed other values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.align_ops import match
from autogradviz.diagnose.blame.causes_of_recompute_difference import find_cause, random_cause
from autogradviz.diagnose.blame.recompute_difference_cause_record import (
    cause_lines,
    confidence_of,
    with_cause,
)
from autogradviz.diagnose.evidence.custom_functions import class_name, frame_in
from autogradviz.diagnose.evidence.recompute_value_diff import (
    contents_known,
    first_affected_line,
    first_changed_save,
    first_other_parameter,
    first_replaced_tensor,
    first_value_mismatch,
    may_agree,
    reaches_gradient,
    values_agree,
)
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_region,
    in_module,
    short_location,
)
from autogradviz.diagnose.rule import Always, Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.analysis import Op, OpPair, Recomputation, Region
    from autogradviz.diagnose.blame.recompute_difference_cause_record import Cause
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A region computed other values when it was recomputed, with the same shapes ------------------
#
# Needs fingerprints (``record(fingerprints=True)``), unless the recomputation reads other
# parameters, or tensors that were computed after the forward had read what was in their place.


@rule(
    "checkpoint-different-values",
    "checkpoint-effect-repeated",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint_effect_repeated",
)
def checkpoint_value_mismatch(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose recomputation computed other values."""
    # Counters and running statistics that changed twice have a rule of their own.
    changed_twice = evidence.buffers | evidence.written_in_both_runs
    for region in evidence.analysis.regions:
        for again in region.recomputations:
            if evidence.written_after(region, again.started_seq) is not None:
                continue  # checkpoint-captured-tensor-mutated
            pair = (
                first_other_parameter(again, evidence.analysis.parameters)
                or first_value_mismatch(again, excluded=changed_twice)
                or _op_of_changed_save(region, again)
            )
            made = None
            if pair is None and not contents_known(region):
                pair, made = first_replaced_tensor(evidence, region, again) or (None, None)
            # Equal results need no cause; searching for one reads all of the user's files.
            cause = None
            if pair is None and _results_differ(region, again):
                cause = find_cause(evidence, region, again)
                pair = again.pairs[again.first_difference or 0] if cause is not None else None
            if pair is not None:
                cause = cause or find_cause(evidence, region, again)
                yield (
                    _value_mismatch(evidence, region, again, pair, cause)
                    if made is None
                    else _replaced(region, again, pair, made, cause)
                )


def _op_of_changed_save(region: Region, again: Recomputation) -> OpPair | None:
    """Return the op whose saved tensor was recomputed with other content.

    Early stop ends a recomputation while its last op saves, before that op returns a result.
    """
    changed = first_changed_save(region, again)
    op = changed.op if changed is not None else None
    return next((p for p in again.pairs if op is not None and p.forward is op), None)


def _results_differ(region: Region, again: Recomputation) -> bool:
    """Return whether a reentrant region returned other values by calling other ops.

    It runs to its end both times, and its forward saves nothing that could be compared.
    """
    if not (region.reentrant and region.ops and again.ops and again.outcome == "completed"):
        return False
    first, last = region.ops[-1], again.ops[-1]
    known = first.output_hashes and last.output_hashes and not (first.written or last.written)
    return bool(known) and first.output_hashes != last.output_hashes


def _value_mismatch(
    evidence: Evidence, region: Region, again: Recomputation, pair: OpPair, cause: Cause | None
) -> Draft:
    op = pair.forward or pair.recompute
    assert op is not None
    names = evidence.analysis.parameters
    culprit = cause.culprit if cause is not None else None
    return Draft(
        title=with_cause(
            f"{region.module or region.function} computed other values when it was recomputed",
            cause,
        ),
        culprit=culprit or op,
        victim=first_affected_line(region, again) or op,
        explanation=[
            f"{describe_region(region)} computed other values the second time, in the same shapes: "
            "its gradients do not belong to the computed loss.",
            *cause_lines(cause),
            f"The first op that differs: {describe_op(op)}",
            op,
            _inputs(pair.forward, pair.recompute, names),
            "Checkpoint compares shapes, not values, so nothing was raised.",
        ],
        fix=cause.fix
        if cause is not None
        else "# make the region compute the same in every call, or stop checkpointing it",
        confidence=confidence_of(cause),
        evidence=(op, again, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


def _replaced(
    region: Region, again: Recomputation, pair: OpPair, made: Op, cause: Cause | None
) -> Draft:
    """Return a draft for a tensor that was replaced by a newer one before recomputation."""
    read = pair.forward
    assert read is not None
    affects = reaches_gradient(region, read)
    name = region.module or region.function
    return Draft(
        slug="checkpoint-different-values" if affects else "checkpoint-effect-repeated",
        title=with_cause(f"{name} read another tensor when it was recomputed", cause),
        culprit=(cause.culprit if cause is not None else None) or made,
        victim=first_affected_line(region, again) or read,
        explanation=[
            f"{describe_region(region)} reads a tensor from outside:",
            read,
            "After that, another tensor took its place, which was computed here:",
            made,
            *cause_lines(cause),
            "Recomputation read the new one: its gradients do not belong to the computed loss."
            if affects
            else "Recomputation started from the new one, and computed the update again.",
            "Checkpoint compares shapes, not values, so nothing was raised.",
        ],
        fix="# return the new tensor from the region, and store it outside, after backward()",
        confidence="likely",
        evidence=(read, made, again, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


def _inputs(first: Op | None, second: Op | None, names: Mapping[int, tuple[str, ...]]) -> str:
    if first is None:
        return "Only the recomputation called it."
    if second is None:
        return "It was not called again, and its saved tensor was recomputed with other content."
    read, again = ([names[t.tensor_id][0] for t in op.inputs if t.tensor_id in names]
                   for op in (first, second))  # fmt: skip
    if read != again:
        return f"It read {', '.join(read)} in the forward, and {', '.join(again)} when recomputed."
    if first.input_hashes != second.input_hashes:
        return "Its inputs held other values already: they changed in between."
    return "Its inputs held the same values: the op itself returned another result."


# --- A checkpointed region drew other random numbers when it was recomputed -----------------------


@rule(
    "checkpoint-random-not-restored",
    "checkpoint-random-state",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint-captured-tensor-mutated",
)
def checkpoint_random_not_restored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region whose first recomputation drew other random numbers."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations[:1]:
            cause = random_cause(evidence, region, recomputation)
            if cause is None or values_agree(region, recomputation):
                continue
            # Only fingerprints show whether a number drawn in Python reached a tensor.
            unsure = cause.slug == "checkpoint-random-state" and may_agree(region, recomputation)
            yield Draft(
                slug=cause.slug,
                title=f"{cause.title}{in_module(region.module)}",
                culprit=cause.culprit,
                victim=first_affected_line(region, recomputation) or cause.victim,
                explanation=[
                    f"The checkpointed region {region.function}{in_module(region.module)} "
                    f"({short_location(region.location)}) drew other random numbers when it was "
                    "recomputed; its gradients belong to those.",
                    *cause.lines,
                    "Shapes are the same, so checkpoint did not notice."
                    + (" record(fingerprints=True) shows whether values differ." * unsure),
                ],
                fix=cause.fix,
                confidence="hint" if unsure else cause.confidence,
                evidence=(*cause.events, recomputation),
            )


# --- A tensor that a checkpointed region reads was written between forward and recomputation ------
#
# PyTorch checks the shapes of recomputed tensors, and the versions of positional tensor arguments.
# It does not check parameters, buffers and captured tensors; their versions are in the log.


@rule(
    "checkpoint-captured-tensor-mutated",
    mechanism="write",
    when=Always(),
    group="region",
    after="shared-gradient-written",
    needs={"ops"},
)
def checkpoint_captured_tensor_mutated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each recomputation that read a tensor written after the forward."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations:
            found = evidence.written_after(region, recomputation.started_seq)
            if found is not None and not values_agree(region, recomputation):
                yield _read_tensor_written(evidence, region, recomputation, *found)


def _read_tensor_written(
    evidence: Evidence, region: Region, recomputation: Recomputation, write: Op, read: Op
) -> Draft:
    name = evidence.shared_name(write, read)
    return Draft(
        title=f"{name or 'A tensor'} changed before the region that reads it was recomputed",
        culprit=write,
        victim=read.location or region.location,
        explanation=[
            f"The checkpointed region {region.function}{in_module(region.module)} reads "
            f"{name or 'a tensor that it did not make'} at {short_location(read.location)}:",
            region,
            f"After its forward, {write.name} wrote it:",
            write,
            "Then the region was recomputed from the new values: its gradients do not belong to "
            "the loss that was computed. Checkpoint compares the versions of positional tensor "
            "arguments only, so nothing was raised.",
        ],
        fix="# call step() only after every backward() through the region"
        if evidence.in_optimizer(write)
        else "# move this write after backward(), or write to a clone",
        # A step belongs where it is as often as the forward: either could be moved.
        confidence="likely" if evidence.in_optimizer(write) else None,
        evidence=(read, write, recomputation),
    )


# --- A hand-written checkpoint: a custom Function that recomputes its forward differently ---------
#
# The rule finds an op that both runs called with the same inputs and that returned another result:
# it drew random numbers, or ran under another autocast setting.


if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

    Pair: TypeAlias = tuple[Op, Op]

_LEAST: Final = 2  # operators that both runs must have in common
_BEGIN: Final = 8  # operators of a second run that are looked for in the first
_DTYPE: Final = re.compile(r"\bdtype\b")


@rule(
    "handmade-checkpoint-differs",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint_value_mismatch",
)
def custom_recompute(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first custom Function whose recomputation returned other results."""
    again: dict[int, list[Op]] = {}
    nodes = evidence.analysis.graph.nodes
    custom = evidence.analysis.custom_functions
    for op in evidence.analysis.ops if custom else ():
        node_id = op.backward_node_id
        if node_id in custom and op.phase == "backward" and op.region_id is None:
            again.setdefault(node_id, []).append(op)
    forwards: dict[str, list[Op]] = {}
    for node_id, ops in sorted(again.items(), key=lambda pair: nodes[pair[0]].order):
        node = nodes[node_id]
        second = _recomputation(evidence, node, ops)
        if second:
            name = class_name(evidence, node)
            if name not in forwards:
                forwards[name] = _forwards(evidence, name)
            pair = _first_different(evidence, _aligned(forwards[name], second))
            if pair is not None:
                yield _handmade_difference(evidence, node, *pair)


def _recomputation(evidence: Evidence, node: Node, ops: list[Op]) -> list[Op]:
    """Return the ops that a custom Function's backward ran, if it recomputes with gradients on.

    Only a custom Function's backward is Python, and only a recomputation creates nodes.
    """
    made = [op for op in ops if op.sequence_nr is not None]
    if not made:
        return []
    name = class_name(evidence, node)
    return [op for op in ops if frame_in(evidence, op, name, "backward") is not None]


def _forwards(evidence: Evidence, name: str) -> list[Op]:
    """Return the ops that the forward of a class called, in all calls."""
    return [
        op
        for op in evidence.analysis.ops
        if op.phase != "backward" and frame_in(evidence, op, name, "forward") is not None
    ]


def _aligned(first: list[Op], second: list[Op]) -> list[Pair]:
    """Return the ops that both runs called, from the first with equal inputs.

    Calls of the same class are distinguished by their inputs.
    """
    begun = next(
        (
            (i, j)
            for j, other in enumerate(second[:_BEGIN])
            for i, op in enumerate(first)
            if op.name == other.name and op.inputs and _same_inputs(op, other)
        ),
        None,
    )
    if begun is None:
        return []
    first, second = first[begun[0] :][: 2 * len(second)], second[begun[1] :]
    matches = match([op.name for op in first], [op.name for op in second], free_tail=True)
    return [(first[x], second[y]) for x, y in matches]


def _first_different(evidence: Evidence, pairs: list[Pair]) -> Pair | None:
    """Return the first pair with different results, if all pairs before it agree."""
    if len(pairs) < _LEAST:
        return None
    for pair in pairs:
        if not _same_inputs(*pair):
            return None
        if _different_results(evidence, *pair):
            return pair
    return None


def _same_inputs(first: Op, second: Op) -> bool:
    """Return whether two calls read the same inputs; inputs they only write do not count."""
    if len(first.inputs) != len(second.inputs):
        return False
    read = [n for n, tensor in enumerate(first.inputs) if tensor not in first.written]
    if first.input_hashes and second.input_hashes:
        pairs = [(first.input_hashes[n], second.input_hashes[n]) for n in read]
        return all(a == b != NO_ID for a, b in pairs)
    return all(first.inputs[n].tensor_id == second.inputs[n].tensor_id for n in read)


def _different_results(evidence: Evidence, first: Op, second: Op) -> bool:
    dtypes = [[t.dtype for t in op.outputs] for op in (first, second)]
    if dtypes[0] != dtypes[1]:
        return True
    hashes = zip(first.output_hashes, second.output_hashes, strict=False)
    drawn = first.seq in evidence.drawing_ops
    return drawn and any(a != b and NO_ID not in {a, b} for a, b in hashes)


def _handmade_difference(evidence: Evidence, node: Node, first: Op, second: Op) -> Draft:
    name = class_name(evidence, node)
    random = first.seq in evidence.drawing_ops
    called = frame_in(evidence, second, name, "backward")
    culprit = called if random else _autocast(called) or called
    elsewhere = culprit != called
    return Draft(
        title=f"{name}.backward runs the forward again, and "
        + ("draws other random numbers" if random else "computes in another dtype"),
        culprit=culprit,
        victim=first,
        explanation=[
            f"{name}{in_module(node.module)} keeps its inputs and runs its forward again in "
            "backward, as a checkpoint does:",
            called,
            f"There {first.name} had the same inputs as in forward, and returned another result:",
            f"  forward:  {describe_op(first)}",
            f"  backward: {describe_op(second)}",
            first,
            "The random state of the forward was not restored."
            if random
            else "Autocast was set differently than in forward"
            + (f", at {short_location(culprit)}:" if elsewhere else "."),
            culprit if elsewhere else "",
            "The gradients belong to values that the loss was not computed from.",
        ],
        fix="y = torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)\n"
        + (
            "# or save torch.get_rng_state() in forward, and set it before the second run"
            if random
            else "# or enter torch.autocast(device, dtype=..., enabled=...) as it was in forward"
        ),
        confidence="likely",
        evidence=(first, second, node),
    )


def _autocast(called: SourceLocation | None) -> SourceLocation | None:
    """Return the line of a backward that enters autocast, preferably without a dtype."""
    if called is None:
        return None
    found = [
        (bool(_DTYPE.search(text)), line, function)
        for line, function, text in source.mentions(called.filename, ("autocast",))
        if function == called.function and "autocast(" in text
    ]
    return source.location(called.filename, *min(found)[1:]) if found else None
