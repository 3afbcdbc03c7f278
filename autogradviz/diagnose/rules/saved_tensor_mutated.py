"""PyTorch's version check found that a saved tensor had been written."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.carried_graph import CarriedGraph, find_carried_graph
from autogradviz.diagnose.blame.raw_memory_or_thread_write import thread_write, unrecorded_write
from autogradviz.diagnose.evidence.compiled_code import (
    find_slot,
    need_line,
    region_name,
    slot_in_storage,
)
from autogradviz.diagnose.evidence.version_error_writes import (
    REPLACES_STORAGE,
    bumps_in_message,
    first_bump_unrecorded,
    versions_in_message,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source.rewrite_out_of_place import out_of_place_fix
from autogradviz.diagnose.text_formatting import (
    describe_tensor,
    in_module,
    short_location,
    slot_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import (
        Analysis,
        HistoryEntry,
        Node,
        Op,
        RaisedError,
        Region,
        SavedTensor,
        SourceLocation,
        Unpack,
    )
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "saved-tensor-mutated",
    "checkpoint-argument-mutated",
    mechanism="write",
    when=ErrorMessage("modified by an inplace operation"),
    group="saved tensor lost",
    at_most=None,
)
def saved_tensor_mutated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each saved tensor whose version check stopped the backward."""
    analysis = evidence.analysis
    error = analysis.error
    assert error is not None
    node = analysis.graph.nodes.get(error.node_id) if error.node_id is not None else None
    found = [
        _saved_tensor(evidence, node, saved, unpack)
        for saved in (node.saved if node is not None else ())
        for unpack in saved.unpacks[-1:]
        # A sparse tensor has no storage; bumps_in_message() looks at its parts.
        if node is not None and saved.broken and saved.tensor.storage_id is not None
    ]
    if not any(draft.culprit is not None for draft in found):
        other = _argument(evidence, error) or _from_message(evidence, error, node)
        found = found if found and other.culprit is None else [other]
    yield from found


def _argument(evidence: Evidence, error: RaisedError) -> Draft | None:
    """Return a draft if an argument of the region that failed was written."""
    region = evidence.failed_region
    if region is None:
        return None
    found = evidence.written_after(region, error.seq)
    if found is not None:
        write, read = found
        return Draft(
            slug="checkpoint-argument-mutated",
            title=f"An argument of {region.function} was written before the region was recomputed",
            culprit=write,
            victim=region,
            explanation=[
                _kept_arguments(region),
                region,
                f"Then {write.name} wrote one of them:",
                write,
                f"{read.name} at {short_location(read.location)} reads it. Recomputation would "
                "have started from the new values, so PyTorch raised an error.",
            ],
            fix=_instead("write to a new tensor, or after backward()", write),
            evidence=(region, write, error),
        )
    given = {s.tensor.storage_id for s in evidence.analysis.saved.values()
             if s.is_argument and s.region_id == region.region_id}  # fmt: skip
    own = next((op for op in region.ops if any(t.storage_id in given for t in op.written)), None)
    if own is None:
        return None
    return Draft(
        slug="checkpoint-argument-mutated",
        title=f"{region.function} writes its own argument, and will be recomputed",
        culprit=own,
        victim=region,
        explanation=[
            _kept_arguments(region),
            region,
            f"Its own forward wrote one of them, by {own.name}:",
            own,
            "Recomputation would have started from the new values, so PyTorch raised an error.",
        ],
        fix=_instead("make a new tensor inside the region", own),
        evidence=(region, own),
    )


def _kept_arguments(region: Region) -> str:
    return (
        f"The checkpointed region {region.function}{in_module(region.module)} keeps its arguments "
        "for its recomputation in backward:"
    )


def _instead(advice: str, write: Op) -> str:
    if write.location is None:
        return "x = x.clone()  # before it is written"
    return f"# {advice}; instead of:\n# {write.location.text}"


def _from_message(evidence: Evidence, error: RaisedError, node: Node | None) -> Draft:
    """Return a draft from the versions in the message, if the node shows no saved tensors."""
    versions = versions_in_message(evidence.analysis)
    known = f" (version {versions.expected} when saved, {versions.now} now)" if versions else ""
    name = node.name if node is not None else "A node"
    bumps = bumps_in_message(evidence, node) if node is not None else []
    op, culprit = (bumps[0].op, bumps[0].location) if bumps else (None, None)
    if bumps and culprit is None:
        culprit = thread_write(evidence)
    victim = node.location if node is not None else None
    compiled = slot_in_storage(evidence, node, bumps[0].op) if node and bumps else None
    if compiled is not None:
        region, slot = compiled
        name = f"The {region_name(region)}"
        victim = need_line(evidence, region, slot) or victim
    return Draft(
        title=f"A tensor that {name} saved was written before backward needed it",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} saved a tensor for "
            f"backward{known}, and it was written since.",
            victim,
            f"{op.name if op is not None else 'A write'} at {short_location(culprit)} wrote a "
            "tensor that had these versions:"
            if culprit is not None
            else "The write was not recorded: record the forward pass too, with ops=True.",
            culprit,
            "set_ gave the tensor another storage; the saved tensor refers to it too."
            if op is not None and op.name == REPLACES_STORAGE
            else "",
        ],
        fix="saved = tensor.clone()  # before the op that saves it",
        confidence="certain" if op is not None and culprit and len(bumps) == 1 else "likely",
        evidence=(*[bump.event for bump in bumps[:1]], error, node),
    )


def _saved_tensor(evidence: Evidence, node: Node, saved: SavedTensor, unpack: Unpack) -> Draft:
    analysis = evidence.analysis
    version = _saved_version(analysis, saved, unpack)
    writes = _writes(analysis, saved, version, unpack)
    unrecorded = first_bump_unrecorded(analysis, saved, version)
    if not unrecorded and writes and (carried := _carried(evidence, node, writes[0])) is not None:
        return _of_earlier_step(evidence, node, saved, writes[0], carried)
    thread = thread_write(evidence) if unrecorded else None
    write = next((entry for entry in writes if entry.location is not None), None)
    write = None if thread is not None else write or next(iter(writes), None)
    compiled = find_slot(evidence, saved)
    victim = saved.location or node.location
    named = slot_name(saved, node.name)
    if compiled is not None:
        region, slot = compiled
        victim = need_line(evidence, region, slot) or victim
        named = f"{slot.source or slot.name}, which the {region_name(region)} saved,"
    culprit = thread or (write.location if write is not None else None)
    culprit = culprit or unrecorded_write(evidence)
    by = f"{_op_name(write)} at {short_location(culprit)}" if culprit is not None else "something"
    others = len(writes) - 1
    described = describe_tensor(saved.tensor)
    if name := evidence.named_memory(saved.tensor):
        described = f"{name} ({described})"
    proven = write is not None and write.location is not None and not unrecorded
    return Draft(
        title=f"{named} was written before backward needed it",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{node.name}{in_module(node.module)} saved {described} as "
            f'"{saved.slot}" at version {version}:',
            victim,
            f"Then {by} wrote the same memory, and its version is now {unpack.seen_version}:",
            culprit,
            f"({others} more write{'s' * (others > 1)} followed.)" if others > 0 else "",
            "The gradient would have been computed from the overwritten values, so PyTorch "
            "raised an error.",
            _shared_counter(saved, write),
            _more_stale(analysis, saved, write),
        ],
        fix=_fix(evidence, saved, write),
        confidence="certain" if proven else "likely",
        evidence=(saved, *writes[:8], unpack, node),
        region_id=node.region_id,
    )


def _carried(evidence: Evidence, node: Node, write: HistoryEntry) -> CarriedGraph | None:
    """Return the graph from before an optimizer's step that a later step carried on."""
    analysis = evidence.analysis
    error = analysis.error
    if error is None or not analysis.write_in_optimizer(write.seq):
        return None
    lines = [p for p in analysis.write_stack(write.seq) if p.filename in evidence.user_files]
    carried = find_carried_graph(evidence, node, write.seq, lines, error.backward_id)
    kept = carried is not None and carried.carrier is not None and carried.reuse.remade
    return carried if kept else None


def _of_earlier_step(
    evidence: Evidence, node: Node, saved: SavedTensor, write: HistoryEntry, carried: CarriedGraph
) -> Draft:
    return Draft(
        title="Backward reached the graph of an earlier step, whose weights were updated since",
        culprit=carried.culprit,
        victim=saved.location or node.location,
        explanation=[
            f"{node.name}{in_module(node.module)} of an earlier step saved "
            f"{evidence.named_memory(saved.tensor) or describe_tensor(saved.tensor)}:",
            saved.location or node.location,
            "The optimizer has written it since:",
            write.location,
            *carried.lines(),
            "retain_graph=True keeps the graph of an earlier step, not the weights that its "
            "gradient needs.",
        ],
        fix=carried.fix,
        confidence="certain" if carried.sure else "likely",
        evidence=(saved, write, carried.reuse.after, node),
        region_id=node.region_id,
    )


def _saved_version(analysis: Analysis, saved: SavedTensor, unpack: Unpack) -> int | None:
    """Return the version that PyTorch expected, from its message if possible.

    For a custom Function PyTorch reads it when the forward ends, which is not recorded.
    """
    versions = versions_in_message(analysis)
    if versions is not None and versions.now == unpack.seen_version:
        return versions.expected
    return saved.version


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
    return write.op if write is not None and write.op else "an unrecorded write"


def _shared_counter(saved: SavedTensor, write: HistoryEntry | None) -> str:
    if write is None or saved.tensor.nbytes >= saved.tensor.storage_nbytes:
        return ""
    return (
        "The saved tensor is a view: all views of one storage share one version counter, so a "
        "write to any part of it counts."
    )


def _more_stale(analysis: Analysis, saved: SavedTensor, write: HistoryEntry | None) -> str:
    """Return a sentence about the other saved tensors that the same line wrote, or ""."""
    if write is None or write.location is None:
        return ""
    count = 0
    for saved_id, bump in analysis.stale.items():
        op = None if bump.op_seq is None else analysis.op_at(bump.op_seq)
        line = analysis.location(bump.stack_id) if op is None else op.location
        count += saved_id != saved.saved_id and line == write.location
    if not count:
        return ""
    return f"The same line wrote {count} more saved tensor{'s' * (count > 1)} that backward needs."


def _fix(evidence: Evidence, saved: SavedTensor, write: HistoryEntry | None) -> str:
    """Return a fix that suits the kind of write."""
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
    """Return the statement that wrote, rewritten out of place, or advice on it."""
    text, stack = line.text, evidence.analysis.write_stack(write.seq)
    if "out=" in text:
        return f"# drop out=, let the op make a new tensor\n# instead of: {text}"
    if _within_torch_nn(stack, line):
        return (
            "# make the module, or call the function, with inplace=False; here it is called:\n"
            f"# {text}"
        )
    through_view = _writes_through_view(evidence, storage_id, write)
    out_of_place = out_of_place_fix(line, part=through_view)
    if out_of_place is None and through_view:
        return (
            "# clone the tensor before the view of it is taken, and use the clone from there on;\n"
            f"# this writes through the view: {text}"
        )
    return out_of_place or f"x = x.clone()  # x: the tensor that is written\n{text}"


def _within_torch_nn(stack: Iterable[SourceLocation], line: SourceLocation) -> bool:
    """Return whether a line called a function of torch.nn that wrote."""
    inner = takewhile(lambda p: (p.filename, p.lineno) != (line.filename, line.lineno), stack)
    return any("/torch/nn/" in place.filename.replace("\\", "/") for place in inner)


def _writes_through_view(evidence: Evidence, storage_id: int | None, write: HistoryEntry) -> bool:
    """Return whether a write went through a view: of a part of the storage, or of another shape."""
    writers = evidence.writers.get(storage_id, ()) if storage_id is not None else ()
    written = [
        tensor
        for op in writers
        if op.location == write.location
        for tensor in op.written
        if tensor.storage_id == storage_id
    ]
    tensors = evidence.analysis.tensors.values()
    base = next((tensor for tensor in tensors if tensor.storage_id == storage_id), None)  # oldest
    return any(
        tensor.nbytes < tensor.storage_nbytes or (base is not None and tensor.shape != base.shape)
        for tensor in written
    )
