"""Memory that both runs of a region read, with other values in the recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.raw_memory_or_thread_write import memory_write, thread_write
from autogradviz.diagnose.blame.recompute_cause_record import Cause
from autogradviz.diagnose.evidence.recompute_value_diff import first_value_mismatch
from autogradviz.diagnose.text_formatting import short_location
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow


def find_overwritten_input(window: RecomputeWindow) -> Cause | None:
    """Return the write to a region's input between the read in forward and in recomputation.

    The region's own forward may have written it after reading it; another thread, NumPy or a
    custom kernel may have written it without a recorded op.
    """
    evidence = window.evidence
    start, end = window.region.entered_seq, window.recomputation.started_seq
    for storage_id in _inputs_with_other_content(window):
        name = evidence.name_of(storage_id) or "a tensor from outside the region"
        writes = evidence.writes_between(storage_id, start, end)
        if writes:
            return _cause(name, writes[-1].location, writes[-1].seq)
        unrecorded = memory_write(evidence, window) or thread_write(evidence)
        if unrecorded is not None:
            return _cause(name, unrecorded, None)
    return None


def _inputs_with_other_content(window: RecomputeWindow) -> list[int]:
    """Return the storages from outside the region whose content differs at the first mismatch."""
    pair = first_value_mismatch(window.recomputation)
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
        if not window.evidence.created_in(now.storage_id, window.region)
    ]


def _cause(name: str, culprit: SourceLocation | None, seq: int | None) -> Cause | None:
    if culprit is None:
        return None
    how = "wrote it" if seq is not None else "writes such memory without a recorded op"
    return Cause(
        slug="checkpoint-captured-tensor-mutated",
        title=f"{name} held other values in recomputation",
        culprit=culprit,
        lines=(
            f"Both runs read {name}, and its content had changed in between. "
            f"{short_location(culprit)} {how}:",
            f"        {culprit.text}",
        ),
        fix="# write it after backward(), or let the region read a clone",
        confidence="likely",
        events=() if seq is None else (seq,),
    )
