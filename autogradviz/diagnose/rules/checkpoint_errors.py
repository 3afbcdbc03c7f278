"""Rules: a recomputation that raised, or whose saves do not fit those of the forward."""

from __future__ import annotations

import ast
import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import align_saves, place_replaced
from autogradviz.analysis.formatting import plural
from autogradviz.diagnose.blame.causes_of_recompute_difference import find_cause
from autogradviz.diagnose.blame.recompute_difference_cause_record import (
    cause_lines,
    confidence_of,
    with_cause,
    with_consequence,
)
from autogradviz.diagnose.evidence.failed_or_changed_unpacks import failed_save
from autogradviz.diagnose.evidence.recompute_value_diff import contents_known, first_changed_save
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_region,
    describe_tensor,
    in_module,
    short_location,
    slot_name,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, Place, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import BackwardStarted, TensorUnpacked
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import (
        RaisedError,
        Recomputation,
        Region,
        SavedTensor,
        SourceLocation,
    )
    from autogradviz.diagnose.blame.recompute_difference_cause_record import Cause
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- an exception in recomputation: checkpoint's determinism check, or the region's own code ------


MAX_SAVES: Final = 4  # saved tensors listed in an explanation

_SHAPES: Final = re.compile(
    r"\b(sizes?|shapes?|dtypes?|scalar type|invalid gradient)\b", re.IGNORECASE
)

_KINDS: Final = (
    (
        "A different number of tensors was saved",
        "checkpoint-different-number",
        "recomputed {again}, not {first}",
    ),
    (
        "have different metadata",
        "checkpoint-different-metadata",
        "recomputed other {kinds}",
    ),
    (
        "trying to save more tensors during",
        "checkpoint-more-saved",
        "recomputed more than {tensors}",
    ),
)


@rule(
    "checkpoint-different-number",
    "checkpoint-different-metadata",
    "checkpoint-more-saved",
    "checkpoint-state-changed",
    "checkpoint-context-missing",
    "checkpoint-not-repeatable",
    "checkpoint-random-state",
    "checkpoint-random-not-restored",
    "checkpoint-captured-tensor-mutated",
    mechanism={
        "checkpoint-different-number": "diverge",
        "checkpoint-different-metadata": "diverge",
        "checkpoint-more-saved": "diverge",
        "checkpoint-state-changed": "diverge",
        "checkpoint-context-missing": "diverge",
        "checkpoint-not-repeatable": "diverge",
        "checkpoint-random-state": "diverge",
        "checkpoint-random-not-restored": "diverge",
        "checkpoint-captured-tensor-mutated": "write",
    },
    when=ErrorMessage(),
    group="recomputation raised",
    after="fsdp-recompute-dtype",
)
def checkpoint_mismatch(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if checkpoint's determinism check, or recomputation itself, raised."""
    error = evidence.analysis.error
    region = _failed_region(evidence)
    if error is None or region is None or not region.recomputations:
        return
    again = region.recomputations[-1]
    cause = find_cause(evidence, region, again)
    if not error.type_name.endswith("CheckpointError"):
        if again.outcome == "error" and cause is not None:
            yield _recomputation_raised(evidence, region, again, error, cause)
        elif cause is not None and _mentions_shapes(error) and _shapes_differ(again):
            yield _recomputation_differs(evidence, region, again, cause, *_KINDS[1][1:])
        return
    kind = next((kind for kind in _KINDS if kind[0] in error.message), None)
    # With debug=True PyTorch replaces the message, and keeps the original as the cause.
    if kind is None and "Detected non-determinism" not in error.message:
        return
    slug, title = (kind[1], kind[2]) if kind else _kind_by_counts(region, again)
    yield _recomputation_differs(evidence, region, again, cause, slug, title)


def _mentions_shapes(error: RaisedError) -> bool:
    """Return whether PyTorch's error is about shapes or types, as those of backward formulas."""
    return error.type_name == "RuntimeError" and _SHAPES.search(error.message) is not None


def _shapes_differ(again: Recomputation) -> bool:
    """Return whether an op of the recomputation returned other shapes or types."""
    return any(
        pair.status == "changed"
        and pair.forward is not None
        and pair.recompute is not None
        and [describe_tensor(t) for t in pair.forward.outputs]
        != [describe_tensor(t) for t in pair.recompute.outputs]
        for pair in again.pairs
    )


def _recomputation_raised(
    evidence: Evidence, region: Region, again: Recomputation, error: RaisedError, cause: Cause
) -> Draft:
    failed = evidence.failed_unpack[0] if evidence.failed_unpack is not None else None
    nodes = evidence.analysis.graph.nodes
    node = nodes.get(failed.node_id) if failed is not None and failed.node_id is not None else None
    first_line = (error.message or error.type_name).splitlines()[0]
    return Draft(
        slug=cause.slug,
        title=f"Recomputation{in_module(region.module)} failed: {cause.title}",
        culprit=cause.culprit,
        victim=failed if failed is not None else error,
        explanation=[
            f"{describe_region(region)} ran without an error in forward. When backward recomputed "
            f"it, {error.type_name} was raised ({first_line}):",
            error,
            *cause.lines,
        ],
        fix=cause.fix,
        confidence="likely",
        evidence=(region, *cause.events, again, error, node),
    )


def _kind_by_counts(region: Region, again: Recomputation) -> tuple[str, str]:
    if len(again.saved) == len(region.saved):
        return _KINDS[1][1], _KINDS[1][2]
    more = len(again.saved) > len(region.saved)
    return (_KINDS[2][1], _KINDS[2][2]) if more else (_KINDS[0][1], _KINDS[0][2])


def _failed_region(evidence: Evidence) -> Region | None:
    """Return the region of the unpack that failed, else the region recomputed last."""
    if evidence.failed_region is not None:
        return evidence.failed_region
    recomputed = [region for region in evidence.analysis.regions if region.recomputations]
    return max(recomputed, key=lambda r: r.recomputations[-1].started_seq, default=None)


def _recomputation_differs(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    cause: Cause | None,
    slug: str,
    title: str,
) -> Draft:
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    mismatches = _mismatched_saves(region, again)
    op = (pair.recompute or pair.forward) if pair is not None else None
    diverged = op.location if op is not None else None
    # A surplus save is the recomputation's: the victim is the line that made it.
    surplus = diverged if slug == "checkpoint-more-saved" else None
    victim = cause.victim if cause is not None else None
    did = title.format(
        first=len(region.saved),
        tensors=plural(len(region.saved), "saved tensor"),
        again=plural(len(again.saved), "saved tensor"),
        kinds=_kinds_that_differ(mismatches),
    )
    name = region.module or region.function
    name = f"module {name}" if name[:1].isdigit() else name
    ops = (pair.forward, pair.recompute) if pair is not None else ()
    nodes = evidence.analysis.graph.nodes
    owners = [nodes.get(first.node_id) for first, _ in mismatches
              if first is not None and first.node_id is not None]  # fmt: skip
    return Draft(
        slug=slug,
        title=with_consequence(cause, name, did) if cause is not None else f"{name} {did}",
        culprit=(cause.culprit if cause is not None else None) or diverged or region.location,
        victim=victim or surplus or _affected_line(region, again, mismatches) or diverged,
        explanation=[
            f"{describe_region(region)} did not run the same way twice.",
            *cause_lines(cause),
            *_first_difference(again),
            *_saved_lines(evidence, region, again, mismatches),
        ],
        fix=cause.fix
        if cause is not None
        else (
            "# make the region do the same in every call: keep caches, counters and random\n"
            "# choices out of it, pass what changes as an argument, or stop checkpointing it"
        ),
        confidence=confidence_of(cause),
        evidence=(
            region,
            *ops,
            again,
            *(cause.events if cause is not None else ()),
            *owners[:MAX_SAVES],
        ),
    )


def _mismatched_saves(
    region: Region, again: Recomputation
) -> list[tuple[SavedTensor | None, SavedTensor | None]]:
    """Return the saves of corresponding ops whose shape, dtype or device differ."""
    pairs = align_saves(again.pairs, region.saved, again.saved)
    return [
        (first, second)
        for first, second in pairs
        if first is None or second is None or _metadata(first) != _metadata(second)
    ]


def _kinds_that_differ(mismatches: list[tuple[SavedTensor | None, SavedTensor | None]]) -> str:
    """Return "shapes", "types", "devices" or several of them, of pairs of saves."""
    pairs = [(_metadata(first), _metadata(second)) for first, second in mismatches
             if first is not None and second is not None]  # fmt: skip
    kinds = enumerate(("shapes", "types", "devices"))
    found = [kind for at, kind in kinds if any(first[at] != now[at] for first, now in pairs)]
    return " and ".join(found or ("shapes", "types"))


def _metadata(saved: SavedTensor) -> tuple[tuple[int, ...], str, str]:
    return saved.tensor.shape, saved.tensor.dtype, saved.tensor.device


def _affected_line(
    region: Region,
    again: Recomputation,
    mismatches: list[tuple[SavedTensor | None, SavedTensor | None]],
) -> SourceLocation | None:
    """Return the line of the first save of the forward that recomputation did not repeat."""
    seqs = set(_unrepeated_ops(again))
    unrepeated = (saved for saved in region.saved if saved.op is not None and saved.op.seq in seqs)
    listed = (first or second for first, second in mismatches)
    for saved in (*unrepeated, *listed):
        if saved is not None and saved.location is not None:
            return saved.location
    last = (again.saved or region.saved)[-1:]
    return last[0].location if last else None


def _unrepeated_ops(again: Recomputation) -> Iterator[int]:
    """Yield the sequence numbers of the forward's ops that recomputation did not repeat.

    If recomputation added ops just before early stop ended it, the ops it omitted were replaced.
    """
    replaced = False
    for before, pair in pairwise((None, *again.pairs)):
        assert pair is not None
        replaced |= pair.status == "not_rerun" and before is not None and before.status == "added"
        if pair.forward is not None and (pair.status in {"removed", "changed"} or replaced):
            yield pair.forward.seq


def _first_difference(again: Recomputation) -> list[str | Place]:
    if again.first_difference is None:
        return ["Both runs called the same ops; they differ in the tensors that autograd saved."]
    number = again.first_difference + 1
    pair = next(islice(place_replaced(again.pairs), again.first_difference, None))
    places = [op.location for op in (pair.forward, pair.recompute) if op is not None]
    return [
        f"They differ first at op {number}:",
        f"  forward:       {describe_op(pair.forward)}",
        f"  recomputation: {describe_op(pair.recompute)}",
        *dict.fromkeys(places),
    ]


def _saved_lines(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    mismatches: list[tuple[SavedTensor | None, SavedTensor | None]],
) -> list[str]:
    if region.reentrant:  # its forward saves nothing
        return []
    lines = [f"Saved tensors: {len(region.saved)} in forward, {len(again.saved)} in recomputation."]
    for first, second in mismatches[:MAX_SAVES]:
        saved = first or second
        assert saved is not None
        nodes = evidence.analysis.graph.nodes
        node = nodes.get(saved.node_id) if saved.node_id is not None else None
        now = describe_tensor(second.tensor) if second is not None else "never saved"
        before = describe_tensor(first.tensor) if first is not None else "not saved"
        name = slot_name(saved, node.name if node is not None else None)
        lines.append(
            f"  {name} (position {saved.position}, {short_location(saved.location)}): {before} → "
            f"{now}"
        )
    if len(mismatches) > MAX_SAVES:
        lines.append(f"  and {len(mismatches) - MAX_SAVES} more")
    return lines


# --- A recomputation handed saved tensors to the wrong operators ----------------------------------
#
# Checkpoint gives the nth tensor saved by the recomputation to the operator that saved the nth
# tensor in forward, and compares no more than their metadata. With early stop it does not even
# see that the recomputation would have saved more.


@rule(
    "checkpoint-saves-shifted",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="compiled-recompute-differs",
)
def checkpoint_saves_misaligned(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose recomputed saves came from different ops."""
    for region in evidence.analysis.regions:
        for again in region.recomputations[:1]:
            pair = _first_misaligned(region, again)
            if pair is not None:
                yield _draft(evidence, region, again, *pair)


def _first_misaligned(
    region: Region, again: Recomputation
) -> tuple[SavedTensor, SavedTensor] | None:
    if again.first_difference is None:
        return None
    if contents_known(region) and first_changed_save(region, again) is None:
        return None  # another branch that saves the same tensors in the same order
    return next(
        (
            (first, second)
            for first, second in zip(region.saved, again.saved, strict=False)
            if first.position == second.position and _ops_differ(first, second)
        ),
        None,
    )


def _ops_differ(first: SavedTensor, second: SavedTensor) -> bool:
    if first.op is None or second.op is None:
        return False
    return (first.op.name, first.op.location) != (second.op.name, second.op.location)


def _draft(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    first: SavedTensor,
    second: SavedTensor,
) -> Draft:
    cause = find_cause(evidence, region, again)
    node = evidence.analysis.graph.nodes.get(first.node_id) if first.node_id is not None else None
    assert second.op is not None
    return Draft(
        title=with_cause(
            f"{region.module or region.function} was recomputed with different ops, and saved "
            "tensors went to the wrong ones",
            cause,
        ),
        culprit=(cause.culprit if cause is not None else None) or second,
        victim=first,
        explanation=[
            f"{describe_region(region)} did not run the same way twice.",
            *cause_lines(cause),
            f"Checkpoint returns tensors by position. At position {first.position} forward "
            f"saved {slot_name(first, node.name if node is not None else None)}, "
            f"{describe_tensor(first.tensor)}:",
            first,
            f"and recomputation saved a tensor of {second.op.name}, "
            f"{describe_tensor(second.tensor)}:",
            second,
            "The first node received the second op's tensor. Their shapes are equal, and early "
            "stop ends a recomputation before a surplus save would show, so nothing was raised.",
        ],
        fix=cause.fix if cause is not None else "# make the region run the same ops in every call",
        confidence=confidence_of(cause),
        evidence=(first, second.saved_seq, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


# --- A checkpointed saved tensor was unpacked twice -----------------------------------------------


@rule(
    "saved-tensors-read-twice",
    mechanism="free",
    when=ErrorMessage(
        "already unpacked once", without="Performing two backward calls that overlap"
    ),
    group="backward raised",
)
def saved_tensors_read_twice(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that unpacked a checkpointed tensor a second time."""
    saved, unpack, name, victim = failed_save(evidence)
    early = _early_unpack(evidence, saved) if saved is not None else None
    culprit = early or evidence.raised_at()
    yield Draft(
        title=f"{name} was unpacked twice under checkpoint",
        culprit=culprit,
        victim=victim,
        explanation=[
            "Every read of ctx.saved_tensors, or of a node's _saved_ attribute, unpacks the tensor "
            "again. Without checkpoint that is harmless; checkpoint returns each tensor once.",
            "The second read:" if early is None else "This read came before the node's own:",
            culprit,
            "The tensor was saved here:",
            victim,
        ],
        fix="saved = ctx.saved_tensors  # once, at the start of backward\n# then use `saved`"
        if early is None
        else "# keep the tensor to inspect in forward: watched = result.detach()",
        confidence="certain" if saved is not None else "likely",
        evidence=(saved, unpack, evidence.analysis.error),
        region_id=saved.region_id if saved is not None else None,
    )


def _early_unpack(evidence: Evidence, saved: SavedTensor) -> SourceLocation | None:
    """Return the user line that unpacked the tensor first, so that the node's own unpack failed."""
    log, location = evidence.analysis.log, evidence.analysis.location
    backwards = {location(event.stack_id) for event in log.of(BackwardStarted)}
    if evidence.raised_at() not in backwards:
        return None  # a custom backward that reads twice
    reads = [location(e.stack_id) for e in log.of(TensorUnpacked) if e.saved_id == saved.saved_id]
    return next((read for read in reads if read is not None and read not in backwards), None)


# --- the exception that ends a recomputation early was caught inside the region -------------------


_MESSAGE: Final = "target_frame.early_stop is set"
_BROAD: Final = frozenset({"Exception", "BaseException"})


@rule(
    "checkpoint-early-stop-caught",
    mechanism="diverge",
    when=ErrorMessage(_MESSAGE),
    group="recomputation raised",
    after="checkpoint-different-number",
)
def early_stop_caught(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the region whose recomputation ran on after the early stop."""
    recomputed = [region for region in evidence.analysis.regions if region.recomputations]
    if not recomputed:
        return
    region = max(recomputed, key=lambda r: r.recomputations[-1].started_seq)
    last = region.saved[-1] if region.saved else None
    victim = last.location if last is not None else region.location
    culprit = _broad_handler(evidence, last.op.stack_id if last is not None and last.op else None)
    yield Draft(
        title=f"The exception that ends the recomputation of {region.function} was caught inside "
        "the region",
        culprit=culprit or region,
        victim=victim,
        explanation=[
            f"Backward recomputed the region {region.function}{in_module(region.module)}:",
            region,
            "When the last tensor that backward needs was saved, here, checkpoint raised an "
            "internal exception to end the recomputation:",
            victim,
            "This handler caught it, and the region went on:" if culprit is not None else "",
            culprit,
        ],
        fix=(
            "# catch only the exceptions that you expect:\n"
            "# except (NotImplementedError, ValueError):\n"
            "# or, around the backward:\n"
            "with torch.utils.checkpoint.set_checkpoint_early_stop(False):\n"
            "    loss.backward()"
        ),
        confidence="likely",
        evidence=(region, evidence.analysis.error),
    )


def _broad_handler(evidence: Evidence, stack_id: int | None) -> SourceLocation | None:
    """Return the innermost handler on a stack that catches every exception."""
    for place in evidence.analysis.stack(stack_id):
        if place.filename in evidence.user_files:
            for function, owner in source.functions(place.filename):
                lines = [n.lineno for n in source.own_nodes(owner)
                         if isinstance(n, ast.Try) for n in _broad(n, place.lineno)]  # fmt: skip
                if lines:
                    return source.location(place.filename, lines[-1], function)
    return None


def _broad(node: ast.Try, lineno: int) -> Iterator[ast.ExceptHandler]:
    """Yield the first handler that catches every exception, if a ``try`` contains a line."""
    inside = node.body[0].lineno <= lineno < lines_of(node.body[-1]).stop
    for handler in node.handlers if inside else ():
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", "") in _BROAD for kind in kinds):
            yield handler
            return


# --- two backwards in one ``GraphExecGroup`` need the same saved tensor ---------------------------


@rule(
    "exec-group-overlap",
    mechanism="free",
    when=ErrorMessage("Performing two backward calls that overlap"),
    group="backward raised",
)
def exec_group_overlap(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the second backward over one region in a ``GraphExecGroup``."""
    saved, unpack, name, victim = failed_save(evidence)
    culprit = evidence.raised_at()
    yield Draft(
        title=f"Two backwards in one GraphExecGroup both need {name}",
        culprit=culprit,
        victim=victim,
        explanation=[
            "Inside a GraphExecGroup a checkpointed region is recomputed once, and each recomputed "
            "tensor can be unpacked once.",
            f"An earlier backward unpacked {name}:",
            victim,
            "This backward runs over the same region and unpacks it again:",
            culprit,
        ],
        fix="# add the losses and call backward() once:\n"
        "(loss_a + loss_b).backward()\n"
        "# or leave the GraphExecGroup and keep retain_graph=True on the first backward",
        confidence="certain",
        evidence=(saved, unpack, evidence.analysis.error),
        region_id=saved.region_id if saved is not None else None,
    )
