"""What PyTorch's message tells of versions, and which write moved a counter past them.

Some nodes show nothing of what they saved: those of ``torch._foreach_*``, say. Their operator's
inputs and outputs are known, and so are the two versions that PyTorch compared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.gradient_flow import storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.events import VersionBumped

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, Node, Op, SavedTensor, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence

_VERSIONS: Final = re.compile(r"is at version (\d+); expected version (\d+)")
_SWAPS: Final = "set_"
"""Gives a tensor other memory, and counts as a write: its counter stays with the tensor."""


class Versions(NamedTuple):
    """The versions that PyTorch compared."""

    now: int
    expected: int


def versions_in_message(analysis: Analysis) -> Versions | None:
    """Return the versions that the error's message tells, None where it tells none."""
    told = _VERSIONS.search(analysis.error.message) if analysis.error is not None else None
    return Versions(int(told[1]), int(told[2])) if told else None


def first_bump_unrecorded(analysis: Analysis, saved: SavedTensor, version: int | None) -> bool:
    """Return whether a counter was past a version before anybody was seen moving it."""
    past = (
        event
        for event in analysis.log.of(VersionBumped)
        if event.storage_id == saved.tensor.storage_id
        and version is not None
        and event.seen_version > version
    )
    first = next(past, None)
    return first is not None and (not first.op or first.version > (version or 0))


def from_message_only(evidence: Evidence, node: Node | None) -> Finding:
    """Say what the message tells, and who moved a counter from the one version to the other."""
    analysis = evidence.analysis
    error, versions = analysis.error, versions_in_message(analysis)
    assert error is not None
    told = f" (version {versions.expected} when saved, {versions.now} now)" if versions else ""
    victim = node.location if node is not None else None
    name = node.name if node is not None else "A node"
    moved = _moved(evidence, node, versions) if node is not None and versions is not None else []
    op = _op(evidence, moved[0]) if moved else None
    culprit = op.location if op is not None else None
    if moved and culprit is None:
        culprit = _line(evidence, moved[0]) or evidence.thread_write()
    return Finding(
        slug="saved-tensor-mutated",
        title=f"A tensor that {name} saved was written before backward needed it",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{name}{where(node.module) if node is not None else ''} saved a tensor for "
                f"backward{told}, and it was written since.",
                quoted(victim),
                f"{op.name if op is not None else 'A write'} at {short(culprit)} is what moved the "
                "version of one of its tensors from the one to the other:"
                if culprit is not None
                else "The write itself was not recorded: record the forward pass too, with "
                "ops=True.",
                quoted(culprit),
                "set_ gave the tensor other memory; whoever saved it finds that too."
                if op is not None and op.name == _SWAPS
                else "",
            ]
        ),
        fix="saved = tensor.clone()  # before the op that saves it",
        confidence="certain" if op is not None and culprit and len(moved) == 1 else "likely",
        events=(*[event.seq for event in moved[:1]], error.seq),
        nodes=(node.node_id,) if node is not None else (),
    )


def _op(evidence: Evidence, event: VersionBumped) -> Op | None:
    made = (op for op in evidence.analysis.ops if op.seq == event.op_seq)
    return next(made, None) if event.op_seq is not None else None


def _moved(evidence: Evidence, node: Node, versions: Versions) -> list[VersionBumped]:
    """Return the first bump past the saved version, of each memory that ended at the other one."""
    error = evidence.analysis.error
    kept = [saved.tensor for saved in node.saved]
    if node.op is not None:
        kept += [*node.op.inputs, *node.op.outputs]
    kept += _parts(evidence, {t.tensor_id for t in kept if t.storage_id is None})
    first: dict[int, VersionBumped] = {}
    last: dict[int, int] = {}
    became = _became(evidence)
    known = {_root(became, storage_id) for storage_id in storages(kept)}
    since = node.op.seq if node.op is not None else 0
    until = error.seq if error is not None else since
    for event in evidence.analysis.log.of(VersionBumped):
        if event.storage_id is None or not since < event.seq < until:
            continue
        counter = _root(became, event.storage_id)
        if counter in known:
            last[counter] = event.seen_version
            if event.seen_version > versions.expected:
                first.setdefault(counter, event)
    found = [event for counter, event in first.items() if last[counter] == versions.now]
    # What stands on the very line of the node is mostly a part of its own forward.
    return sorted(found, key=lambda event: _line(evidence, event) == node.location)


def _parts(evidence: Evidence, sparse: set[int]) -> list[Tensor]:
    """Return the values and indices that somebody took out of sparse tensors."""
    return [
        tensor
        for op in (evidence.analysis.ops if sparse else ())
        if op.name.endswith(("values", "indices"))
        and any(given.tensor_id in sparse for given in op.inputs)
        for tensor in op.outputs
    ]


def _line(evidence: Evidence, event: VersionBumped) -> SourceLocation | None:
    op = _op(evidence, event)
    return op.location if op is not None else evidence.analysis.location(event.stack_id)


def _became(evidence: Evidence) -> dict[int, int]:
    """Return which memory a tensor had before ``set_``, by what it was given."""
    found: dict[int, int] = {}
    for op in evidence.analysis.ops:
        if op.name == _SWAPS and op.inputs and op.outputs:
            before, after = op.inputs[0].storage_id, op.outputs[0].storage_id
            if before is not None and after is not None and before != after:
                found.setdefault(after, before)
    return found


def _root(became: dict[int, int], storage_id: int) -> int:
    seen = {storage_id}
    while storage_id in became and became[storage_id] not in seen:
        storage_id = became[storage_id]
        seen.add(storage_id)
    return storage_id
