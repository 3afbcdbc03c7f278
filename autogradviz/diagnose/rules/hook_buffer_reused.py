"""A pack hook put a second tensor where it had put a first one, before backward took that back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, shape, short, slot, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import Always, rule
from autogradviz.events import HooksEntered, PackedWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="hook-memory-reused",
    title="A pack hook put a second tensor where a first one still lay",
    means="""A pack hook that copies into memory of its own, a pinned staging buffer for instance,
    was called again, and wrote over a tensor that backward had yet to take back. The gradient is
    computed from the later tensor, and nothing is raised.""",
    happens="""One buffer serves all saved tensors, a ring of buffers has fewer places than
    tensors are saved, or a cursor is not moved on.""",
    fix="""Give each saved tensor a place of its own, and use a place again only after the unpack
    hook has read it.""",
    example="""
import torch
from torch.autograd.graph import saved_tensors_hooks
import autogradviz

staging = torch.empty(3)

def pack(tensor):
    staging.copy_(tensor)  # <-- named
    return staging

x = torch.rand(3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    with saved_tensors_hooks(pack, lambda kept: kept):
        loss = x.exp().tanh().sum()
    loss.backward()
""",
)


@rule("hook-memory-reused", when=Always(), priority=250, pages=(PAGE,), at_most=None)
def find_reused_buffers(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first saved tensor whose place in a hook's memory was written."""
    told = sorted(evidence.analysis.log.of(PackedWritten), key=lambda event: event.saved_id)
    for event in told:
        saved = evidence.analysis.saved.get(event.saved_id)
        write = _write(evidence, event)
        if saved is not None and write is not None:
            yield _describe(evidence, saved, event, write)
            return


def _write(evidence: Evidence, event: PackedWritten) -> Op | None:
    """Return the op that wrote it, None where another part of the memory may be what was written.

    All views of one memory share one version: without contents only a write to the very same
    window, or to all of the memory, counts.
    """
    tensor = evidence.analysis.tensors[event.tensor_id]
    if event.saved_hash is not None and event.saved_hash == event.seen_hash:
        return None
    known = event.saved_hash is not None
    return next(
        (
            op
            for op in evidence.writes_between(tensor.storage_id, event.since_seq, event.seq)
            for written in op.written
            if written.storage_id == tensor.storage_id
            and (
                known
                or written.tensor_id == tensor.tensor_id
                or tensor.storage_nbytes in {tensor.nbytes, written.nbytes}
            )
        ),
        None,
    )


def _describe(evidence: Evidence, saved: SavedTensor, event: PackedWritten, write: Op) -> Finding:
    node = evidence.analysis.graph.nodes.get(saved.node_id) if saved.node_id is not None else None
    name = slot(saved, node.name if node is not None else None)
    pairs = [e for e in evidence.analysis.log.of(HooksEntered) if e.seq < saved.saved_seq]
    hook = next((e.function for e in reversed(pairs) if e.packed_by == "user"), "its pack hook")
    proven = event.saved_hash is not None and write.location is not None
    return Finding(
        slug="hook-memory-reused",
        title=f"{name} was overwritten in the memory where a pack hook had put it",
        culprit=write.location,
        victim=saved.location,
        explanation=fit(
            [
                f"{name}{where(node.module) if node is not None else ''} went through saved-tensor "
                f"hooks when it was saved ({shape(saved.tensor)}):",
                quoted(saved.location),
                f"{hook} gave memory of its own that holds it, "
                f"{shape(evidence.analysis.tensors[event.tensor_id])} at version {event.version}.",
                f"Before backward took it back, {write.name} at {short(write.location)} wrote that "
                f"memory again; it is at version {event.seen_version} now:",
                quoted(write.location),
                "The unpack hook gave backward what was written last, not what was saved. PyTorch "
                "checks no versions behind hooks, so nothing was raised.",
            ]
        ),
        fix="# give each saved tensor memory of its own, or use a buffer again only after its\n"
        "# unpack hook ran:\n"
        "def pack(tensor):\n"
        '    return tensor.clone()  # or tensor.to("cpu", copy=True)',
        confidence="certain" if proven else "likely",
        events=(saved.saved_seq, write.seq, event.seq),
        nodes=(node.node_id,) if node is not None else (),
        region_id=saved.region_id,
    )
