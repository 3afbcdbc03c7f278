"""An exception in recomputation: checkpoint's determinism check, or the region's own code."""

from __future__ import annotations

import re
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.find_recompute_cause import find_cause
from autogradviz.diagnose.blame.recompute_cause_record import cause_lines, confidence_of, with_cause
from autogradviz.diagnose.rule import Draft, ErrorMessage, Place, rule
from autogradviz.diagnose.text_formatting import (
    describe_op,
    describe_region,
    describe_tensor,
    in_module,
    short_location,
    slot_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import (
        OpPair,
        RaisedError,
        Recomputation,
        Region,
        SavedTensor,
        SourceLocation,
    )
    from autogradviz.diagnose.blame.recompute_cause_record import Cause
    from autogradviz.diagnose.evidence.facts import Evidence

MAX_SAVES: Final = 4  # saved tensors listed in an explanation

_SHAPES: Final = re.compile(
    r"\b(sizes?|shapes?|dtypes?|scalar type|invalid gradient)\b", re.IGNORECASE
)

_KINDS: Final = (
    (
        "A different number of tensors was saved",
        "checkpoint-different-number",
        "Recomputation saved {again} tensors, forward saved {first}",
    ),
    (
        "have different metadata",
        "checkpoint-different-metadata",
        "Recomputation saved tensors of different shapes or types",
    ),
    (
        "trying to save more tensors during",
        "checkpoint-more-saved",
        "Recomputation saved more than the {first} tensors of the forward",
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
    counts = title.format(first=len(region.saved), again=len(again.saved))
    ops = (pair.forward, pair.recompute) if pair is not None else ()
    nodes = evidence.analysis.graph.nodes
    owners = [nodes.get(first.node_id) for first, _ in mismatches
              if first is not None and first.node_id is not None]  # fmt: skip
    return Draft(
        slug=slug,
        title=with_cause(counts + in_module(region.module or region.function), cause),
        culprit=(cause.culprit if cause is not None else None) or diverged or region.location,
        victim=victim or surplus or _affected_line(region, again, mismatches) or diverged,
        explanation=[
            f"{describe_region(region)} did not run the same way twice.",
            *cause_lines(cause),
            *_first_difference(pair, again),
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
    """Return the pairs of saves, by position, whose shape, dtype or device differ."""
    pairs = zip_longest(region.saved, again.saved)
    return [
        (first, second)
        for first, second in pairs
        if first is None or second is None or _metadata(first) != _metadata(second)
    ]


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


def _first_difference(pair: OpPair | None, again: Recomputation) -> list[str | Place]:
    if pair is None:
        return ["Both runs called the same ops; they differ in the tensors that autograd saved."]
    number = (again.first_difference or 0) + 1
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
