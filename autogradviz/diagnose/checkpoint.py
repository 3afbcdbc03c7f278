"""A checkpointed region ran differently when it was recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, op_words, quoted, shape, short, slot, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Model, OpPair, Recomputation, Region, SavedTensor, SourceLocation

SHOWN: Final = 4  # saved tensors listed

_KINDS: Final = (
    (
        "A different number of tensors was saved",
        "checkpoint-different-number",
        "Recomputation saved {again} tensors, forward saved {first}",
    ),
    (
        "have different metadata",
        "checkpoint-different-metadata",
        "Recomputation made tensors of other shapes or types",
    ),
    (
        "trying to save more tensors during",
        "checkpoint-more-saved",
        "Recomputation saved more than the {first} tensors of the forward",
    ),
)


def find_diverged(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where checkpoint's determinism check stopped the backward."""
    model = evidence.model
    error = model.error
    if error is None or not error.type_name.endswith("CheckpointError"):
        return
    kind = next((kind for kind in _KINDS if kind[0] in error.message), None)
    # With debug=True PyTorch replaces the message, and keeps the first one as the cause.
    if kind is None and "Detected non-determinism" not in error.message:
        return
    region = _failed_region(model)
    if region is None or not region.recomputations:
        return
    again = region.recomputations[-1]
    slug, title = (kind[1], kind[2]) if kind else _kind_by_counts(region, again)
    yield _describe(model, region, again, slug, title)


def _kind_by_counts(region: Region, again: Recomputation) -> tuple[str, str]:
    if len(again.saved) == len(region.saved):
        return _KINDS[1][1], _KINDS[1][2]
    more = len(again.saved) > len(region.saved)
    return (_KINDS[2][1], _KINDS[2][2]) if more else (_KINDS[0][1], _KINDS[0][2])


def _failed_region(model: Model) -> Region | None:
    """Return the region whose saved tensor could not be taken back."""
    failed = [
        (unpack.seq, saved)
        for saved in model.saved.values()
        for unpack in saved.unpacks
        if unpack.failed and saved.region_id is not None
    ]
    if failed:
        _, saved = min(failed, key=lambda pair: pair[0])  # the innermost fails first
        return next((r for r in model.regions if r.region_id == saved.region_id), None)
    rerun = [region for region in model.regions if region.recomputations]
    return max(rerun, key=lambda r: r.recomputations[-1].started_seq, default=None)


def _describe(
    model: Model, region: Region, again: Recomputation, slug: str, title: str
) -> Finding:
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    differing = _differing(region, again)
    culprit = _divergence(pair)
    victim = _victim(region, again, differing) or culprit
    place = region.module or region.function
    return Finding(
        slug=slug,
        title=title.format(first=len(region.saved), again=len(again.saved)) + where(place),
        culprit=culprit or region.location,
        victim=victim,
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} "
                f"({short(region.location)}) did not run the same way twice.",
                *_first_difference(pair, again),
                *_saved_lines(model, region, again, differing),
            ]
        ),
        fix=(
            "# make the region do the same at every call: keep caches, counters and random\n"
            "# choices out of it, pass what changes as an argument, or stop checkpointing it"
        ),
        confidence="likely",
        events=_evidence(region, again, pair),
        nodes=tuple(
            node_id
            for saved in (first for first, _ in differing if first is not None)
            if (node_id := saved.node_id) is not None
        )[:SHOWN],
        region_id=region.region_id,
    )


def _divergence(pair: OpPair | None) -> SourceLocation | None:
    if pair is None:
        return None
    op = pair.recompute or pair.forward
    return op.location if op is not None else None


def _differing(
    region: Region, again: Recomputation
) -> list[tuple[SavedTensor | None, SavedTensor | None]]:
    """Return the saves that do not match, position by position."""
    longest = max(len(region.saved), len(again.saved))
    rows = []
    for position in range(longest):
        first = region.saved[position] if position < len(region.saved) else None
        second = again.saved[position] if position < len(again.saved) else None
        if first is None or second is None or _metadata(first) != _metadata(second):
            rows.append((first, second))
    return rows


def _metadata(saved: SavedTensor) -> tuple[tuple[int, ...], str, str]:
    return saved.tensor.shape, saved.tensor.dtype, saved.tensor.device


def _victim(
    region: Region,
    again: Recomputation,
    differing: list[tuple[SavedTensor | None, SavedTensor | None]],
) -> SourceLocation | None:
    for first, second in differing:
        saved = first or second
        if saved is not None and saved.location is not None:
            return saved.location
    last = (again.saved or region.saved)[-1:]
    return last[0].location if last else None


def _first_difference(pair: OpPair | None, again: Recomputation) -> list[str]:
    if pair is None:
        return ["Both runs called the same operators; they differ in what autograd saved."]
    number = (again.first_difference or 0) + 1
    lines = [f"They part at operator {number}:", f"  forward:       {op_words(pair.forward)}"]
    lines.append(f"  recomputation: {op_words(pair.recompute)}")
    places = [op.location for op in (pair.forward, pair.recompute) if op is not None]
    lines += list(dict.fromkeys(quoted(place) for place in places))
    return lines


def _saved_lines(
    model: Model,
    region: Region,
    again: Recomputation,
    differing: list[tuple[SavedTensor | None, SavedTensor | None]],
) -> list[str]:
    lines = [f"Saved tensors: {len(region.saved)} in forward, {len(again.saved)} in recomputation."]
    for first, second in differing[:SHOWN]:
        saved = first or second
        assert saved is not None
        node = model.graph.nodes.get(saved.node_id) if saved.node_id is not None else None
        now = shape(second.tensor) if second is not None else "never saved"
        before = shape(first.tensor) if first is not None else "not saved"
        name = slot(saved, node.name if node is not None else None)
        lines.append(f"  {name} (position {saved.position}, {short(saved.location)}): {before} → {now}")
    if len(differing) > SHOWN:
        lines.append(f"  and {len(differing) - SHOWN} more")
    return lines


def _evidence(region: Region, again: Recomputation, pair: OpPair | None) -> tuple[int, ...]:
    ops = [op.seq for op in (pair.forward, pair.recompute) if op is not None] if pair else []
    return (region.entered_seq, *ops, again.started_seq)
