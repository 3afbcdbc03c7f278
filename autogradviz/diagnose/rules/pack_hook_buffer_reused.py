"""A pack hook overwrote a tensor that it had packed, before backward unpacked it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import (
    describe_tensor,
    in_module,
    short_location,
    slot_name,
)
from autogradviz.events import HooksEntered, PackedWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "hook-memory-reused",
    mechanism="write",
    when=Always(),
    group="saved tensor",
    after="hidden-write",
)
def hook_buffer_reused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first packed tensor whose memory was written before its unpack."""
    written = sorted(evidence.analysis.log.of(PackedWritten), key=lambda event: event.saved_id)
    for event in written:
        saved = evidence.analysis.saved.get(event.saved_id)
        write = _write(evidence, event)
        if saved is not None and write is not None:
            yield _draft(evidence, saved, event, write)


def _write(evidence: Evidence, event: PackedWritten) -> Op | None:
    """Return the op that overwrote packed memory, None if it may have written another part.

    All views of one storage share one version. Without fingerprints only a write to the same view,
    or to the whole storage, counts.
    """
    tensor = evidence.analysis.tensors[event.tensor_id]
    if event.saved_hash is not None and event.saved_hash == event.seen_hash:
        return None
    known = event.saved_hash is not None
    writes = evidence.overwrites(tensor, event.since_seq, event.seq)
    return next((op for op, surely in writes if known or surely), None)


def _draft(evidence: Evidence, saved: SavedTensor, event: PackedWritten, write: Op) -> Draft:
    node = evidence.analysis.graph.nodes.get(saved.node_id) if saved.node_id is not None else None
    name = slot_name(saved, node.name if node is not None else None)
    pairs = [e for e in evidence.analysis.log.of(HooksEntered) if e.seq < saved.saved_seq]
    hook = next((e.function for e in reversed(pairs) if e.packed_by == "user"), "its pack hook")
    proven = event.saved_hash is not None and write.location is not None
    return Draft(
        title=f"{name} was overwritten in the memory where a pack hook had put it",
        culprit=write.location,
        victim=saved.location,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} went through "
            f"saved-tensor hooks when it was saved ({describe_tensor(saved.tensor)}):",
            saved,
            f"{hook} returned its own memory with a copy, "
            f"{describe_tensor(evidence.analysis.tensors[event.tensor_id])} at version "
            f"{event.version}.",
            f"Before backward unpacked it, {write.name} at {short_location(write.location)} "
            f"wrote that memory again; it is at version {event.seen_version} now:",
            write,
            "The unpack hook returned the last write, not the saved values. PyTorch "
            "checks no versions behind hooks, so nothing was raised.",
        ],
        fix="# give each saved tensor memory of its own, or use a buffer again only after its\n"
        "# unpack hook ran:\n"
        "def pack(tensor):\n"
        '    return tensor.clone()  # or tensor.to("cpu", copy=True)',
        confidence="certain" if proven else "likely",
        evidence=(saved, write, event, node),
        region_id=saved.region_id,
    )
