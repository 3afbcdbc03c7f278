"""Memory that both runs of a region read, and that held other values the second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.cause import Cause
from autogradviz.diagnose.blame.unrecorded_write import memory_write, thread_write
from autogradviz.diagnose.blame.window import RecomputeWindow
from autogradviz.diagnose.evidence.recompute_diff import first_value_mismatch
from autogradviz.diagnose.formatting import short_location
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def find_rewritten(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return what wrote memory that a region read, where the log shows no change but its content.

    The region's own forward may have written it after it had read it; another thread, NumPy or a
    kernel of the user's may have, without an operator that was recorded.
    """
    for storage_id in _read_otherwise(evidence, region, again):
        name = evidence.name_of(storage_id) or "a tensor that it did not make"
        writes = evidence.writes_between(storage_id, region.entered_seq, again.started_seq)
        if writes:
            return _cause(name, writes[-1].location, writes[-1].seq)
        passage = RecomputeWindow(evidence, region, again)
        unseen = memory_write(evidence, passage) or thread_write(evidence)
        if unseen is not None:
            return _cause(name, unseen, None)
    return None


def _read_otherwise(evidence: Evidence, region: Region, again: Recomputation) -> list[int]:
    """Return what the first operator to differ read with other content, and the region not made."""
    pair = first_value_mismatch(again)
    if pair is None or pair.forward is None or pair.recompute is None:
        return []
    first, second = pair.forward, pair.recompute
    contents = zip(first.inputs, second.inputs, first.input_hashes, second.input_hashes,
                   strict=False)  # fmt: skip
    return [
        now.storage_id
        for before, now, was, is_now in contents
        if now.storage_id is not None and now.storage_id == before.storage_id
        if was != is_now and NO_ID not in {was, is_now}
        if not evidence.created_in(now.storage_id, region)
    ]


def _cause(name: str, culprit: SourceLocation | None, seq: int | None) -> Cause | None:
    if culprit is None:
        return None
    how = "wrote it" if seq is not None else "writes such memory, past PyTorch or in another thread"
    return Cause(
        slug="checkpoint-captured-tensor-mutated",
        title=f"{name} held other values in recomputation",
        culprit=culprit,
        lines=(
            f"Both runs read {name}, and its content was another one the second time. "
            f"{short_location(culprit)} {how}:",
            f"        {culprit.text}",
        ),
        fix="# write it after backward(), or let the region read a clone",
        confidence="likely",
        events=() if seq is None else (seq,),
    )
