"""A saved tensor was written before backward needed it, and PyTorch refused."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.version_message import (
    first_bump_unrecorded,
    from_message_only,
    versions_in_message,
)
from autogradviz.diagnose.finding import Confidence, Finding
from autogradviz.diagnose.formatting import fit, quoted, shape, short, slot, where
from autogradviz.diagnose.source.suggest_fix import rewritten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import (
        Analysis,
        HistoryEntry,
        Node,
        Region,
        SavedTensor,
        SourceLocation,
        Unpack,
    )
    from autogradviz.diagnose.evidence.facts import Evidence

SLUG: Final = "saved-tensor-mutated"
_MESSAGE: Final = "modified by an inplace operation"


def find_mutated(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each slot whose version check stopped the backward."""
    analysis = evidence.analysis
    error = analysis.error
    if error is None or _MESSAGE not in error.message:
        return
    node = analysis.graph.nodes.get(error.node_id) if error.node_id is not None else None
    broken = [
        (saved, unpack)
        for saved in (node.saved if node is not None else ())
        for unpack in saved.unpacks[-1:]
        if saved.broken and saved.tensor.storage_id is not None  # else sparse: its parts are
    ]
    found = [_describe(evidence, node, *each) for each in broken] if node is not None else []
    if not any(finding.culprit is not None for finding in found):
        other = _region_argument(evidence) or from_message_only(evidence, node)
        found = found if found and other.culprit is None else [other]
    yield from found


def _region_argument(evidence: Evidence) -> Finding | None:
    """Return a finding where a checkpointed region's own argument was written."""
    error = evidence.analysis.error
    region = evidence.failed_region
    if error is None or region is None:
        return None
    found = evidence.written_after(region, error.seq)
    if found is None:
        return _own_argument(evidence, region)
    write, read = found
    return Finding(
        slug="checkpoint-argument-mutated",
        title=f"An argument of {region.function} was written before the region was recomputed",
        culprit=write.location,
        victim=region.location,
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} kept its "
                "arguments, to run again in backward:",
                quoted(region.location),
                f"Then {write.name} wrote one of them:",
                quoted(write.location),
                f"{read.name} at {short(read.location)} reads it. Recomputation would have started "
                "from the new values, so PyTorch stopped.",
            ]
        ),
        fix=f"# write to a new tensor, or after backward(); instead of:\n# {write.location.text}"
        if write.location is not None
        else "x = x.clone()  # before it is written",
        confidence="certain" if write.location is not None else "likely",
        events=(region.entered_seq, write.seq, error.seq),
        region_id=region.region_id,
    )


def _own_argument(evidence: Evidence, region: Region) -> Finding | None:
    """Return a finding where a region's own forward wrote an argument that it was given."""
    given = {s.tensor.storage_id for s in evidence.analysis.saved.values()
             if s.is_argument and s.region_id == region.region_id}  # fmt: skip
    write = next((op for op in region.ops if any(t.storage_id in given for t in op.written)), None)
    if write is None:
        return None
    return Finding(
        slug="checkpoint-argument-mutated",
        title=f"{region.function} writes its own argument, and is to be run again",
        culprit=write.location,
        victim=region.location,
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} kept its "
                "arguments, to run again in backward:",
                quoted(region.location),
                f"Its own forward wrote one of them, by {write.name}:",
                quoted(write.location),
                "Recomputation would have started from the new values, so PyTorch stopped.",
            ]
        ),
        fix=f"# make a new tensor inside the region; instead of:\n# {write.location.text}"
        if write.location is not None
        else "x = x.clone()  # before it is written",
        confidence="certain" if write.location is not None else "likely",
        events=(region.entered_seq, write.seq),
        region_id=region.region_id,
    )


def _describe(evidence: Evidence, node: Node, saved: SavedTensor, unpack: Unpack) -> Finding:
    analysis = evidence.analysis
    version = _saved_version(analysis, saved, unpack)
    writes = _writes(analysis, saved, version, unpack)
    unseen = first_bump_unrecorded(analysis, saved, version)
    thread = evidence.thread_write() if unseen else None
    write = next((entry for entry in writes if entry.location is not None), None)
    write = None if thread is not None else write or next(iter(writes), None)
    victim = saved.location or node.location
    named = slot(saved, node.name)
    culprit = thread or (write.location if write is not None else None)
    culprit = culprit or evidence.unseen_write()
    by = f"{_op_name(write)} at {short(culprit)}" if culprit is not None else "something"
    others = len(writes) - 1
    proven = write is not None and write.location is not None and not unseen
    confidence: Confidence = "certain" if proven else "likely"
    return Finding(
        slug=SLUG,
        title=f"{named} was written before backward needed it",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{node.name}{where(node.module)} saved {shape(saved.tensor)} as "
                f'"{saved.slot}" at version {version}:',
                quoted(victim),
                f"Then {by} wrote the same memory, and its version is now {unpack.seen_version}:",
                quoted(culprit),
                f"({others} more writes followed.)" if others > 0 else "",
                "The gradient would have been computed from the overwritten values, so PyTorch "
                "stopped.",
                _shared_counter(saved, write),
            ]
        ),
        fix=_fix(evidence, saved, write),
        confidence=confidence,
        events=(saved.saved_seq, *[entry.seq for entry in writes[:8]], unpack.seq),
        nodes=(node.node_id,),
        region_id=node.region_id,
    )


def _saved_version(analysis: Analysis, saved: SavedTensor, unpack: Unpack) -> int | None:
    """Return the version that PyTorch remembered, as its message tells, else as recorded.

    Nobody sees when the forward of a custom Function ends, which is when PyTorch reads it.
    """
    told = versions_in_message(analysis)
    return told.expected if told is not None and told.now == unpack.seen_version else saved.version


def _writes(
    analysis: Analysis, saved: SavedTensor, version: int | None, unpack: Unpack
) -> list[HistoryEntry]:
    """Return the writes that moved the counter past the saved version, oldest first."""
    history = analysis.history(saved.tensor.storage_id)
    if history is None:
        return []
    return [
        entry
        for entry in history.entries
        if entry.kind == "written"
        and entry.seq < unpack.seq
        and entry.version is not None
        and version is not None
        and entry.version > version
    ]


def _op_name(write: HistoryEntry | None) -> str:
    return write.op if write is not None and write.op else "an unseen write"


def _shared_counter(saved: SavedTensor, write: HistoryEntry | None) -> str:
    if write is None or saved.tensor.nbytes >= saved.tensor.storage_nbytes:
        return ""
    return (
        "The saved tensor is a view: all views of one storage share one version counter, so a "
        "write to any part of it counts."
    )


def _fix(evidence: Evidence, saved: SavedTensor, write: HistoryEntry | None) -> str:
    """Return the change that fits the way the write came about."""
    if write is None or write.location is None:
        return "saved = tensor.clone()  # before the op that saves it"
    text, storage_id = write.location.text, saved.tensor.storage_id
    if evidence.analysis.write_in_optimizer(write.seq):
        return (
            "# call step() only after every backward() that uses these weights,\n"
            "# or run the forward again between step() and the next backward()"
        )
    if _op_name(write) == "increment_version":
        return "# write to a copy: the kernel's output must not be a tensor saved for backward"
    if storage_id is not None and evidence.name_of(storage_id):
        return f"# use tensor.clone() in the forward, or move this after backward():\n# {text}"
    return _of_statement(evidence, storage_id, write, write.location)


def _of_statement(
    evidence: Evidence, storage_id: int | None, write: HistoryEntry, line: SourceLocation
) -> str:
    """Return the statement that wrote, written anew, or what to change about it."""
    text, stack = line.text, evidence.analysis.write_stack(write.seq)
    if "out=" in text:
        return f"# drop out=, let the op make a new tensor\n# instead of: {text}"
    if _within_torch_nn(stack, line):
        return (
            "# make the module, or call the function, with inplace=False; here it is called:\n"
            f"# {text}"
        )
    anew = rewritten(line, part=_writes_part(evidence, storage_id, write))
    return anew or f"x = x.clone()  # x being what is written, before this line\n{text}"


def _within_torch_nn(stack: Iterable[SourceLocation], line: SourceLocation) -> bool:
    """Return whether a line called something of torch.nn, which wrote."""
    inner = takewhile(lambda p: (p.filename, p.lineno) != (line.filename, line.lineno), stack)
    return any("/torch/nn/" in place.filename.replace("\\", "/") for place in inner)


def _writes_part(evidence: Evidence, storage_id: int | None, write: HistoryEntry) -> bool:
    """Return whether a write went through a view of a part of a storage."""
    written = [
        tensor
        for op in (evidence.writers.get(storage_id, ()) if storage_id is not None else ())
        if op.location == write.location
        for tensor in op.written
        if tensor.storage_id == storage_id
    ]
    return any(tensor.nbytes < tensor.storage_nbytes for tensor in written)
