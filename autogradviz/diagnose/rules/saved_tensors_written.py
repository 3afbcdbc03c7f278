"""Rules: saved tensors that were written between save and read."""

from __future__ import annotations

import ast
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.blame.modes_random_numbers_and_hidden_writes import (
    ran_before_read,
    thread_write,
    unrecorded_write,
    write_before_read,
)
from autogradviz.diagnose.blame.tensors_carried_between_steps import (
    CarriedGraph,
    find_carried_graph,
)
from autogradviz.diagnose.evidence.compiled_code import (
    find_slot,
    need_line,
    region_name,
    slot_in_storage,
)
from autogradviz.diagnose.evidence.evidence import uses_running_statistics
from autogradviz.diagnose.evidence.failed_or_changed_unpacks import (
    REPLACES_STORAGE,
    bumps_in_message,
    bypass_reason,
    computed_gradients,
    first_bump_unrecorded,
    is_needed,
    reads_of_saves,
    silent_write_fix,
    versions_in_message,
)
from autogradviz.diagnose.finding_text import (
    describe_tensor,
    in_module,
    line_number_or_place,
    short_location,
    slot_name,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.source.operands_changed_as_fixes import simple_statements
from autogradviz.diagnose.source.statements_rewritten_as_fixes import (
    out_of_place_fix,
    written_variable,
)
from autogradviz.event_log.stacks import where_stacks_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.finding import Confidence


# --- pyTorch's version check found that a saved tensor had been written ---------------------------


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
    changed = out_of_place_fix(write.location, part=False)
    if changed is not None:
        return f"{changed}  # {advice}"
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
    if not unrecorded and writes:
        early = _forward_before_step(evidence, node, writes[0])
        if early is not None:
            return _of_stale_forward(evidence, node, saved, writes[0], early)
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
    name = evidence.named_memory(saved.tensor)
    if name:
        described = f"{name} ({described})"
        if compiled is None and culprit is not None:
            named = f"{name} was written by {_call_or_line(culprit)}"
    proven = write is not None and write.location is not None and not unrecorded
    # What wrote a weight is certain; the forward that read it could be moved as well.
    movable = write is not None and evidence.analysis.write_in_optimizer(write.seq)
    return Draft(
        title=(_written_after_save(victim, culprit) if proven and compiled is None else "")
        or f"{named}{'' if ' was written by ' in named else ' was written'} before backward "
        "needed it",
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
        confidence="certain" if proven and not movable else "likely",
        evidence=(saved, *writes[:8], unpack, node),
        region_id=node.region_id,
    )


def _call_or_line(place: SourceLocation) -> str:
    """Return the short call that a line consists of, or else its number."""
    for statement in simple_statements(place):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            text = ast.unparse(statement)
            if len(text) <= _SHORT:
                return text
    return f"line {place.lineno}"


_SHORT: Final = 40  # characters in a title


def _written_after_save(save: SourceLocation | None, write: SourceLocation | None) -> str:
    """Return a title with the variable that a line writes, "" if it or a line is unknown."""
    if save is None or write is None or save == write:
        return ""
    name = written_variable(write)
    saver = line_number_or_place(save, write)
    return f"{name} was written at line {write.lineno} after {saver} saved it" if name else ""


def _forward_before_step(
    evidence: Evidence, node: Node, write: HistoryEntry
) -> SourceLocation | None:
    """Return the line whose forward should run after an optimizer's step, None if there is none.

    The step is where it belongs if the backward that failed also trains what its optimizer does not
    have: with the step after it, that optimizer would use gradients of a loss of another one.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    error = analysis.error
    started = evidence.backward(error.backward_id) if error is not None else None
    step = next((step for step in graph.steps if step.seq > write.seq), None)
    if (
        started is None
        or step is None
        or not analysis.write_in_optimizer(write.seq)
        or evidence.first_backward(node) is not None  # the graph of an earlier loss
    ):
        return None
    nodes = graph.reachable(started.root_ids) & graph.leaves.keys()
    reached = {graph.leaves[node_id] for node_id in nodes} & graph.requires_grad.keys()
    own = set(graph.updated_in(step))
    if not (reached & own and reached - own):
        return None
    lines = analysis.write_stack(write.seq)[::-1]
    stack = [line for line in lines if line.filename in evidence.user_files]
    forward = analysis.user_stack(node.op.stack_id if node.op is not None else None)[::-1]
    parted = where_stacks_part(forward, stack)
    return parted[0] if parted is not None and parted[0].lineno != parted[1].lineno else None


def _of_stale_forward(
    evidence: Evidence, node: Node, saved: SavedTensor, write: HistoryEntry, early: SourceLocation
) -> Draft:
    named = evidence.named_memory(saved.tensor) or describe_tensor(saved.tensor)
    return Draft(
        title="Backward needs weights from before a step of another optimizer",
        culprit=early,
        victim=saved.location or node.location,
        explanation=[
            f"{node.name}{in_module(node.module)} saved {named}:",
            saved.location or node.location,
            "It ran here, before the step of the optimizer that has this weight:",
            early,
            write.location,
            "The loss whose backward failed also trains parameters that this optimizer does not "
            "have: its forward can run after the step. A step after its backward would use the "
            "gradients of both losses.",
            _more_stale(evidence.analysis, saved, write),
        ],
        fix=f"# after the step:\n{early.text}",
        confidence="likely",
        evidence=(saved, write, node),
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
        fix=f"{carried.fix}\n# then backward() needs no retain_graph=True",
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
    return [
        entry
        for entry in analysis.writes(saved.tensor.storage_id)
        if entry.seq < unpack.seq
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


# --- A saved tensor was written without a change of its version counter ---------------------------


@rule("silent-write", mechanism="write", when=NoError(), group="saved tensor", after="hidden-write")
def silent_write(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first line whose writes bypassed the version counter."""
    computed = None
    found: list[_Read] = []
    for node, saved, unpack in reads_of_saves(evidence):
        if (saved.slot or "").startswith("running_") and not (
            node.op is not None and uses_running_statistics(node.op)
        ):
            continue  # BatchNorm's forward updates them, and its backward does not read them
        write = _bypassing_write(evidence, saved, unpack)
        changed = _changed_value(unpack)
        if changed is None:
            changed = write is not None
        if not changed or saved.packed_by != "pytorch":
            continue
        computed = computed_gradients(evidence) if computed is None else computed
        if is_needed(node, saved, computed):
            found.append(_Read(node, saved, unpack, write))
    if found:
        line = _line_of(found[0].write)
        yield _silent_write(evidence, [read for read in found if _line_of(read.write) == line])


class _Read(NamedTuple):
    """A read of a saved tensor in backward, after a write by an op or by something unrecorded."""

    node: Node
    saved: SavedTensor
    unpack: Unpack
    write: Op | None


def _line_of(write: Op | None) -> SourceLocation | None:
    return None if write is None else write.location


def _changed_value(unpack: Unpack) -> bool | None:
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
    known = any(surely for _, surely in writes) or not _changed_value(unpack)
    return next((op for op, surely in writes if surely or not known), None)


def _silent_write(evidence: Evidence, reads: Sequence[_Read]) -> Draft:
    """Return the draft of the writes of one line, reported at the first read after one."""
    node, saved, unpack, write = reads[0]
    writes = {read.write.seq for read in reads if read.write is not None}
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
            f"The line did so {len(writes)} times, and backward read {len(reads)} such tensors."
            if len(writes) > 1
            else "",
        ],
        fix=silent_write_fix(evidence, write, culprit),
        confidence=_confidence(evidence, saved, unpack, write, culprit),
        evidence=(saved, write, unpack, node, *(read.unpack for read in reads[1:])),
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
    return "certain" if _changed_value(unpack) and culprit is not None else "likely"


# --- the values of a saved sparse tensor were written ---------------------------------------------
#
# A sparse tensor shares the memory of its values, and has its own version counter.


@rule("silent-write", mechanism="write", when=NoError(), group="saved tensor", after="silent_write")
def sparse_parts_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write to the values of each saved sparse tensor."""
    made = {t.tensor_id: op for op in evidence.analysis.ops if op.name.startswith("_sparse_")
            and "tensor" in op.name for t in op.outputs}  # fmt: skip
    reads = list(reads_of_saves(evidence)) if made else []
    for node, saved, unpack in reversed(reads):  # the gradients of earlier nodes are wrong as well
        maker = made.get(saved.tensor.tensor_id)
        if maker is not None and saved.tensor.storage_id is None:
            for part in maker.inputs:
                for write, _ in evidence.overwrites(part, saved.saved_seq, unpack.seq)[:1]:
                    yield _sparse_write(node, saved, maker, write, unpack.seq)


def _sparse_write(node: Node, saved: SavedTensor, maker: Op, write: Op, read_seq: int) -> Draft:
    victim = saved.location or node.location
    return Draft(
        title=f"The values of {node.name}.{saved.slot} were written before backward",
        culprit=write.location,
        victim=victim,
        explanation=[
            f'{node.name}{in_module(node.module)} saved a sparse tensor as "{saved.slot}":',
            victim,
            "It was created here, and shares the memory of its values:",
            maker,
            f"Then {write.name} at {short_location(write.location)} wrote them:",
            write,
            "The sparse tensor has its own version counter, which did not change: the "
            "gradient was computed from the new values, and nothing was raised.",
        ],
        fix="torch.sparse_coo_tensor(indices, values.clone(), size)\n"
        "# or write the values after backward()",
        confidence="likely",
        evidence=(saved, write, read_seq, node),
    )


# --- A saved tensor was written while saved-tensor hooks disabled PyTorch's version check ---------


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
        if saved.packed_by == "user" and _is_changed(unpack):
            writes = evidence.overwrites(saved.tensor, saved.saved_seq, unpack.seq)
            yield from (_hidden_write(node, saved, unpack, write) for write, _ in writes[:1])


def _is_changed(unpack: Unpack) -> bool:
    """Return whether both version and content differ from those at the save.

    Different content alone proves nothing: a hook may round or compress what it keeps.
    """
    return (
        None not in {unpack.version, unpack.seen_version, unpack.saved_hash, unpack.seen_hash}
        and unpack.version != unpack.seen_version
        and unpack.saved_hash != unpack.seen_hash
    )


def _hidden_write(node: Node, saved: SavedTensor, unpack: Unpack, write: Op) -> Draft:
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
