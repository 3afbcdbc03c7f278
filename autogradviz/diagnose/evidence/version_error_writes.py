"""The versions in PyTorch's error message, and the writes that moved a counter past them.

Some nodes do not show the tensors that they saved, those of ``torch._foreach_*`` for example.
Their op's inputs and outputs are known, and so are the two versions that PyTorch compared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.events import VersionBumped

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, Node, Op, SavedTensor, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence

_VERSIONS: Final = re.compile(r"is at version (\d+); expected version (\d+)")

REPLACES_STORAGE: Final = "set_"
"""An op that gives a tensor another storage. It counts as a write: the counter stays with the
tensor."""


class Versions(NamedTuple):
    """The versions that PyTorch compared."""

    now: int
    expected: int


class Bump(NamedTuple):
    """A version counter that moved, and the op that moved it, if one was recorded."""

    event: VersionBumped
    op: Op | None
    location: SourceLocation | None


def versions_in_message(analysis: Analysis) -> Versions | None:
    """Return the versions in the error's message, None if it contains none."""
    found = _VERSIONS.search(analysis.error.message) if analysis.error is not None else None
    return Versions(int(found[1]), int(found[2])) if found else None


def first_bump_unrecorded(analysis: Analysis, saved: SavedTensor, version: int | None) -> bool:
    """Return whether the write that moved a counter past a version was not recorded."""
    past = (
        event
        for event in analysis.log.of(VersionBumped)
        if event.storage_id == saved.tensor.storage_id
        and version is not None
        and event.seen_version > version
    )
    first = next(past, None)
    return first is not None and (not first.op or first.version > (version or 0))


def bumps_in_message(evidence: Evidence, node: Node) -> list[Bump]:
    """Return the writes that the message can mean, those outside the node's own line first.

    Of each storage that the node may have saved, and whose version ended at the one in the
    message, that is the first write past the version that PyTorch expected.
    """
    versions = versions_in_message(evidence.analysis)
    if versions is None:
        return []
    error = evidence.analysis.error
    kept = [saved.tensor for saved in node.saved]
    if node.op is not None:
        kept += [*node.op.inputs, *node.op.outputs]
    kept += _sparse_parts(evidence, {t.tensor_id for t in kept if t.storage_id is None})
    first: dict[int, VersionBumped] = {}
    last: dict[int, int] = {}
    sources = _set_sources(evidence)
    known = {_resolve(sources, storage_id) for storage_id in storages(kept)}
    since = node.op.seq if node.op is not None else 0
    until = error.seq if error is not None else since
    for event in evidence.analysis.log.of(VersionBumped):
        if event.storage_id is None or not since < event.seq < until:
            continue
        counter = _resolve(sources, event.storage_id)
        if counter in known:
            last[counter] = event.seen_version
            if event.seen_version > versions.expected:
                first.setdefault(counter, event)
    found = [
        _bump(evidence, event) for counter, event in first.items() if last[counter] == versions.now
    ]
    # A write on the node's own line is usually a part of its forward.
    return sorted(found, key=lambda bump: bump.location == node.location)


def _bump(evidence: Evidence, event: VersionBumped) -> Bump:
    made = (op for op in evidence.analysis.ops if op.seq == event.op_seq)
    op = next(made, None) if event.op_seq is not None else None
    location = op.location if op is not None else evidence.analysis.location(event.stack_id)
    return Bump(event, op, location)


def _sparse_parts(evidence: Evidence, sparse: set[int]) -> list[Tensor]:
    """Return the values and indices that ops took out of sparse tensors."""
    return [
        tensor
        for op in (evidence.analysis.ops if sparse else ())
        if op.name.endswith(("values", "indices"))
        and any(given.tensor_id in sparse for given in op.inputs)
        for tensor in op.outputs
    ]


def _set_sources(evidence: Evidence) -> dict[int, int]:
    """Return the storage that a tensor had before ``set_``, by the one that it was given."""
    found: dict[int, int] = {}
    for op in evidence.analysis.ops:
        if op.name == REPLACES_STORAGE and op.inputs and op.outputs:
            before, after = op.inputs[0].storage_id, op.outputs[0].storage_id
            if before is not None and after is not None and before != after:
                found.setdefault(after, before)
    return found


def _resolve(sources: dict[int, int], storage_id: int) -> int:
    """Return the first storage in a chain of ``set_``."""
    seen = {storage_id}
    while storage_id in sources and sources[storage_id] not in seen:
        storage_id = sources[storage_id]
        seen.add(storage_id)
    return storage_id
