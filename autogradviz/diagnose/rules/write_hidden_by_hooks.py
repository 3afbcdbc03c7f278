"""A saved tensor was written while saved-tensor hooks kept PyTorch from checking its version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, slot, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence


def find_hidden_writes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first hooked save that was written, and came back changed."""
    if evidence.analysis.error is not None:
        return
    for node in sorted(evidence.analysis.graph.nodes.values(), key=lambda n: n.order):
        for saved in node.saved:
            for unpack in saved.unpacks:
                if saved.packed_by == "user" and _changed(unpack):
                    write = _first_write(evidence, saved, unpack)
                    if write is not None:
                        yield _describe(node, saved, unpack, write)
                        return


def _changed(unpack: Unpack) -> bool:
    """Return whether the tensor was written, and other content handed to backward.

    Content alone proves nothing: a hook may round or compress what it keeps.
    """
    return (
        None not in {unpack.version, unpack.seen_version, unpack.saved_hash, unpack.seen_hash}
        and unpack.version != unpack.seen_version
        and unpack.saved_hash != unpack.seen_hash
    )


def _first_write(evidence: Evidence, saved: SavedTensor, unpack: Unpack) -> Op | None:
    writes = evidence.writes_between(saved.tensor.storage_id, saved.saved_seq, unpack.seq)
    return next(iter(writes), None)


def _describe(node: Node, saved: SavedTensor, unpack: Unpack, write: Op) -> Finding:
    named = slot(saved, node.name)
    victim = saved.location or node.location
    return Finding(
        slug="hidden-write",
        title=f"{named} was written before backward, and hooks hid it",
        culprit=write.location,
        victim=victim,
        explanation=fit(
            [
                f'{node.name}{where(node.module)} saved a tensor as "{saved.slot}" at version '
                f"{unpack.version}, through saved-tensor hooks:",
                quoted(victim),
                f"Then {write.name} at {short(write.location)} wrote the same memory; its version "
                f"is {unpack.seen_version}:",
                quoted(write.location),
                "While saved-tensor hooks are on PyTorch does not check versions: the gradient was "
                "computed from the new values, and nothing was raised. Without the hooks this is "
                'the error "modified by an inplace operation".',
            ]
        ),
        fix="# make a new tensor instead of writing in place, or let the pack hook return\n"
        "# tensor.clone(); instead of:\n"
        f"# {write.location.text if write.location is not None else ''}",
        confidence="certain" if write.location is not None else "likely",
        events=(saved.saved_seq, write.seq, unpack.seq),
        nodes=(node.node_id,),
    )
