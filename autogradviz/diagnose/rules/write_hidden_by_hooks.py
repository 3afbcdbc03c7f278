"""A saved tensor was written while saved-tensor hooks disabled PyTorch's version check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.judge_silent_write import reads_of_saves
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import in_module, short_location, slot_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "hidden-write",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    needs={"ops", "fingerprints"},
    supersedes=("checkpoint-different-values",),
)
def write_hidden_by_hooks(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each hooked save that was written and unpacked with other content."""
    for node, saved, unpack in reads_of_saves(evidence):
        if saved.packed_by == "user" and _changed(unpack):
            writes = evidence.overwrites(saved.tensor, saved.saved_seq, unpack.seq)
            yield from (_draft(node, saved, unpack, write) for write, _ in writes[:1])


def _changed(unpack: Unpack) -> bool:
    """Return whether both version and content differ from those at the save.

    Different content alone proves nothing: a hook may round or compress what it keeps.
    """
    return (
        None not in {unpack.version, unpack.seen_version, unpack.saved_hash, unpack.seen_hash}
        and unpack.version != unpack.seen_version
        and unpack.saved_hash != unpack.seen_hash
    )


def _draft(node: Node, saved: SavedTensor, unpack: Unpack, write: Op) -> Draft:
    victim = saved.location or node.location
    return Draft(
        title=f"{slot_name(saved, node.name)} was written before backward, and hooks hid it",
        culprit=write,
        victim=victim,
        explanation=[
            f'{node.name}{in_module(node.module)} saved a tensor as "{saved.slot}" at version '
            f"{unpack.version}, through saved-tensor hooks:",
            victim,
            f"Then {write.name} at {short_location(write.location)} wrote the same memory; its "
            f"version is {unpack.seen_version}:",
            write,
            "Saved-tensor hooks disable PyTorch's version check: the gradient was computed from "
            "the new values, and nothing was raised. Without the hooks this is the error "
            '"modified by an inplace operation".',
        ],
        fix="# make a new tensor instead of writing in place, or let the pack hook return\n"
        "# tensor.clone(); instead of:\n"
        f"# {write.location.text if write.location is not None else ''}",
        evidence=(saved, write, unpack, node),
    )
