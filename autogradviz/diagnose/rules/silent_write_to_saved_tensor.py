"""A saved tensor was written without a change of its version counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.raw_memory_or_thread_write import (
    ran_before_read,
    thread_write,
    write_before_read,
)
from autogradviz.diagnose.evidence.facts import uses_running_statistics
from autogradviz.diagnose.evidence.judge_silent_write import (
    bypass_reason,
    computed_gradients,
    is_needed,
    reads_of_saves,
    silent_write_fix,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import (
    in_module,
    short_location,
    slot_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, SourceLocation, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.finding import Confidence


@rule("silent-write", mechanism="write", when=NoError(), group="saved tensor", after="hidden-write")
def silent_write(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write that bypassed the version counter."""
    computed = None
    for node, saved, unpack in reads_of_saves(evidence):
        if (saved.slot or "").startswith("running_") and not (
            node.op is not None and uses_running_statistics(node.op)
        ):
            continue  # BatchNorm's forward updates them, and its backward does not read them
        write = _bypassing_write(evidence, saved, unpack)
        changed = _changed(unpack)
        if changed is None:
            changed = write is not None
        if not changed or saved.packed_by != "pytorch":
            continue
        computed = computed_gradients(evidence) if computed is None else computed
        if is_needed(node, saved, computed):
            yield _draft(evidence, node, saved, unpack, write)


def _changed(unpack: Unpack) -> bool | None:
    """Return whether the content differs from the save, None without fingerprints."""
    if unpack.saved_hash is None or unpack.seen_hash is None:
        return None
    return unpack.saved_hash != unpack.seen_hash and unpack.version == unpack.seen_version


def _bypassing_write(evidence: Evidence, saved: SavedTensor, unpack: Unpack) -> Op | None:
    """Return the op that wrote a saved tensor without changing its version."""
    if saved.packed_by != "pytorch" or unpack.version is None:
        return None
    if unpack.seen_version != unpack.version:
        return None
    if (saved.slot or "").startswith("running_"):  # BatchNorm does not declare that it writes
        between = evidence.writes_between(saved.tensor.storage_id, saved.saved_seq, unpack.seq)
        return next(iter(between), None)
    writes = evidence.overwrites(saved.tensor, saved.saved_seq, unpack.seq)
    known = any(surely for _, surely in writes) or not _changed(unpack)
    return next((op for op, surely in writes if surely or not known), None)


def _draft(
    evidence: Evidence, node: Node, saved: SavedTensor, unpack: Unpack, write: Op | None
) -> Draft:
    name = evidence.name_of(saved.tensor.storage_id) if saved.tensor.storage_id is not None else ""
    named = slot_name(saved, node.name)
    victim = saved.location or node.location
    culprit = (
        write.location if write is not None else write_before_read(evidence, saved.op, unpack.seq)
    )
    return Draft(
        title=f"{name or named} was written before backward, past the version check",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{node.name}{in_module(node.module)} saved {name or 'a tensor'} as "
            f'"{saved.slot}" at version {saved.version}:',
            victim,
            f"Then {write.name} at {short_location(culprit)} wrote the same memory:"
            if write is not None
            else "Its content differs from the save, and no recorded op wrote it: a "
            "kernel with a raw pointer, NumPy on shared memory, another thread."
            + (" The source contains such a write:" if culprit is not None else ""),
            culprit,
            bypass_reason(write),
            f"so the counter was still {unpack.seen_version} when backward read the tensor: "
            "the gradient was computed from the new values, and nothing was raised.",
        ],
        fix=silent_write_fix(evidence, write, culprit),
        confidence=_confidence(evidence, saved, unpack, write, culprit),
        evidence=(saved, write, unpack, node),
    )


def _confidence(
    evidence: Evidence,
    saved: SavedTensor,
    unpack: Unpack,
    write: Op | None,
    culprit: SourceLocation | None,
) -> Confidence:
    if write is None:
        sure = ran_before_read(evidence, saved.op, unpack.seq, culprit)
        return "likely" if sure or culprit == thread_write(evidence) else "hint"
    return "certain" if _changed(unpack) and culprit is not None else "likely"
