"""Rules: custom Functions: what they keep, write and return."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.blame.modes_random_numbers_and_hidden_writes import write_before_read
from autogradviz.diagnose.evidence.custom_functions import (
    applied_at,
    backward_line,
    class_name,
    forward_of,
    frame_in,
    ops_within,
)
from autogradviz.diagnose.evidence.evidence import fully_written
from autogradviz.diagnose.evidence.failed_or_changed_unpacks import bypass_reason, silent_write_fix
from autogradviz.diagnose.evidence.gradient_facts_that_failed import read_fact
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import describe_tensor, in_module, short_location
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.operands_changed_as_fixes import with_result_named
from autogradviz.diagnose.source.writes_by_name_and_in_threads import attribute_assignment
from autogradviz.events import NO_ID, ContextTensorKept, FunctionMarked, GradientFactFailed, HookRan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Hook, Node, Op, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.gradient_facts_that_failed import FailedFact


# --- A custom Function kept a tensor as a ctx attribute, and it was written before backward -------
#
# ``ctx.x = x`` keeps a tensor without saving it: PyTorch records and checks no version.


@rule("ctx-attribute-written", mechanism="write", when=NoError(), group="saved tensor")
def ctx_attribute_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first ctx attribute that was written before backward read it."""
    nodes = evidence.analysis.graph.nodes
    custom = evidence.analysis.custom_functions
    for index, op in enumerate(evidence.analysis.ops if custom else ()):
        if op.backward_node_id not in custom:
            continue
        if op.recompute_id is not None:
            continue  # PyTorch's reentrant checkpoint is a custom Function too
        node = nodes[op.backward_node_id]
        if frame_in(evidence, op, class_name(evidence, node), "backward") is None:
            continue
        for storage_id in _read(evidence, index, op):
            found = _written_since(evidence, node, op, storage_id)
            if found is not None and _computes_gradient(evidence, index, op):
                yield _attribute_written(evidence, node, op, *found)


def _read(evidence: Evidence, index: int, op: Op) -> dict[int, None]:
    """Return the storages whose values an op reads and does not write."""
    written = {tensor.storage_id for tensor in op.written}
    found: dict[int, None] = {}
    for position in evidence.causal_graph.value_inputs(index):
        storage_id = op.inputs[position].storage_id
        known = op.input_versions[position : position + 1] not in ((), (NO_ID,))
        if known and storage_id is not None and storage_id not in written:
            found[storage_id] = None
    return found


def _computes_gradient(evidence: Evidence, index: int, read: Op) -> bool:
    """Return whether the result of an op in a backward can be in a gradient.

    Another node reads what was computed from it, it enters a graph that the backward made, or it
    is a new tensor that nothing reads: the backward may return that. Numbers, results of an integer
    type and what only updates older memory, such as a statistic, are in no gradient.
    """
    graph, ops = evidence.causal_graph, evidence.analysis.ops
    derived: set[int] = set()
    unread: set[int] = set()
    for at in range(index, len(ops)):
        op = ops[at]
        if op.phase == "forward":
            break
        keys = graph.inputs_memory[at]
        taken = {keys[position] for position in graph.value_inputs(at)} & derived
        if at != index and not taken:
            continue
        if op.backward_node_id != read.backward_node_id or op.sequence_nr is not None:
            return True
        unread -= taken
        made = {graph.memory(each) for each in graph.outputs[at] if each in graph.differentiable}
        # Masks and indices are in no gradient, but what is computed with them may be.
        results = (*graph.outputs[at], *graph.written[at])
        derived |= {graph.memory(each) for each in results}
        unread |= {key for key in made if graph.creators.get(key, NO_OP) >= index}
    return bool(unread)


def _written_since(
    evidence: Evidence, node: Node, read: Op, storage_id: int
) -> tuple[Op, Op] | None:
    """Return the op of a node's forward that used a storage, and the first write after it."""
    if any(saved.tensor.storage_id == storage_id for saved in node.saved):
        return None  # PyTorch checks this one
    writes = [write for write in evidence.writers.get(storage_id, ()) if write.seq < read.seq]
    if any(w.backward_node_id == node.node_id and storage_id in fully_written(w) for w in writes):
        return None  # backward itself filled it
    if not writes:
        return None  # few tensors are written: skip the search below
    owner = class_name(evidence, node)
    first, last = forward_of(evidence, node)
    used = [
        op
        for op in ops_within(evidence, first, last)
        if any(t.storage_id == storage_id for t in (*op.inputs, *op.outputs))
        and frame_in(evidence, op, owner, "forward") is not None
    ]
    for write in writes if used else ():
        # The forward of this call may write; that of another call may not.
        own = write.seq < last and frame_in(evidence, write, owner, "forward") is not None
        if used[0].seq < write.seq and not own:
            return used[0], write
    return None


def _recomputed_line(evidence: Evidence, read: Op) -> SourceLocation | None:
    """Return the first line that a backward reran, with gradients on, from the tensor it read."""
    return next(
        (
            op.location
            for op in evidence.analysis.ops
            if op.seq > read.seq
            and op.backward_node_id == read.backward_node_id
            and op.sequence_nr is not None
            and op.location is not None
            and read.location is not None
            and op.location.function != read.location.function
        ),
        None,
    )


def _kept_in_region(evidence: Evidence, node: Node, forward: Op) -> SourceLocation | None:
    """Return the line of a checkpointed region that set an attribute of ``ctx``.

    A recomputation provides new saved tensors, but the attributes of the first run's ``ctx`` stay.
    """
    if forward.region_id is None:
        return None
    tensors = {t.tensor_id for t in (*forward.inputs, *forward.outputs)}
    for event in evidence.analysis.log.of(ContextTensorKept):
        if event.node_id == node.node_id and event.tensor_id in tensors:
            near = evidence.analysis.location(event.stack_id) or node.location
            return attribute_assignment(near, event.attribute)
    return None


def _attribute_written(evidence: Evidence, node: Node, read: Op, forward: Op, write: Op) -> Draft:
    kept = _kept_in_region(evidence, node, forward)
    return Draft(
        title=f"{node.name} read a tensor that was written after its forward",
        culprit=kept or write.location,
        victim=_recomputed_line(evidence, read)
        or (applied_at(evidence, node) if kept is not None else None)
        or node.location
        or forward.location,
        explanation=[
            f"The forward of {class_name(evidence, node)}{in_module(node.module)} used a tensor "
            "and kept it without save_for_backward:",
            kept or forward,
            f"Then {write.name} wrote the same memory:",
            write,
            f"and its backward read it at {short_location(read.location)}:",
            read,
            "Attributes of ctx have no version check, so nothing was raised, and "
            "the gradient was computed from the new values.",
            "It was called in a checkpointed region: recomputation provides new saved "
            "tensors, but leaves the attributes of the first run's ctx as they are."
            if kept is not None
            else "",
        ],
        fix="# write to a clone, or after backward(); and let PyTorch check it:\n"
        "ctx.save_for_backward(x)  # in forward: such a write then raises an error\n"
        "(x,) = ctx.saved_tensors  # in backward"
        if kept is None
        else "ctx.save_for_backward(x)  # in forward: PyTorch then checks the version\n"
        "(x,) = ctx.saved_tensors  # in backward",
        confidence="certain" if write.location is not None and kept is None else "likely",
        evidence=(forward, write, read, node),
    )


# --- ctx or hook kept alive -----------------------------------------------------------------------
#
# Objects that stay alive after backward: tensors on a ``ctx``, and hooks that are not removed.


_LARGE: Final = 1_000_000  # bytes; smaller tensors are not reported
_MIN_HOOKS: Final = 3  # hooks of one line that ran in one backward


@rule(
    "context-keeps-tensor",
    "hooks-pile-up",
    mechanism="keep",
    when=NoError(),
    group="waste",
    after="step-without-gradients",
    at_most=None,
)
def kept_alive_after_backward(evidence: Evidence) -> Iterator[Draft]:
    """Yield drafts for tensors that a custom Function keeps, and for hooks that accumulate."""
    yield from _on_context(evidence)
    yield from _accumulated_hooks(evidence)


def _on_context(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each attribute of a ``ctx`` that keeps a tensor, once for each slot."""
    analysis = evidence.analysis
    reported = set()
    for event in analysis.log.of(ContextTensorKept):
        node = analysis.graph.nodes.get(event.node_id)
        large = analysis.tensors[event.tensor_id].nbytes >= _LARGE
        if node is None or not node.runs or not (event.own_output or large):
            continue
        key = (node.name, event.slot)
        if key not in reported:
            reported.add(key)
            yield _kept(evidence, event, node)


def _kept(evidence: Evidence, event: ContextTensorKept, node: Node) -> Draft:
    name = event.attribute
    # The recorded line is that of save_for_backward, in the same function.
    near = evidence.analysis.location(event.stack_id) or node.location
    culprit = attribute_assignment(near, name) or near
    cycle = event.own_output
    return Draft(
        title=f"{node.name} keeps {event.slot}, and backward does not free it",
        culprit=culprit,
        victim=node.location,
        explanation=[
            f"{describe_tensor(evidence.analysis.tensors[event.tensor_id])} hangs on the ctx "
            "of a custom Function:",
            culprit,
            "A tensor in save_for_backward is freed when backward has run, and its version is "
            "checked. An attribute is neither freed nor checked: it stays as long as the node.",
            "This one is the Function's own result, so it keeps its node alive and the "
            "node keeps it: both stay until Python's garbage collector runs."
            if cycle
            else "",
        ],
        fix=f"ctx.save_for_backward(..., {name})  # and in backward: ctx.saved_tensors",
        confidence="likely" if cycle else "hint",
        evidence=(event, node),
    )


def _accumulated_hooks(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if several hooks of one line on one tensor ran in one backward."""
    of_line: dict[tuple[int, str, SourceLocation], list[Hook]] = defaultdict(list)
    for hook in evidence.analysis.hooks:
        owner = hook.tensor_id if hook.tensor_id is not None else -1
        if hook.location is not None and (owner >= 0 or hook.module):
            of_line[owner, hook.module, hook.location].append(hook)
    for (owner, module, line), hooks in of_line.items():
        ids = {hook.hook_id for hook in hooks}
        runs: dict[int | None, set[int]] = defaultdict(set)
        for event in evidence.analysis.log.of(HookRan):
            if event.hook_id in ids:
                runs[event.backward_id].add(event.hook_id)
        most = max((len(found) for found in runs.values()), default=0)
        if most >= _MIN_HOOKS:
            names = evidence.analysis.parameters.get(owner, (module or "a tensor",))
            yield _hooks_draft(
                line, names[0], hooks, Counter({len(f): 1 for f in runs.values()}), most
            )


def _hooks_draft(
    line: SourceLocation, name: str, hooks: list[Hook], sizes: Counter[int], most: int
) -> Draft:
    growing = len(sizes) > 1
    return Draft(
        title=f"{name} has {most} hooks from one line, and all of them run",
        culprit=line,
        victim=None,
        explanation=[
            f"A hook was registered on {name} {len(hooks)} times here:",
            line,
            "Each backward ran more of them than the previous one: a hook stays until its handle "
            "is removed, and so do all objects its function refers to."
            if growing
            else f"One backward ran {most} of them.",
        ],
        fix=(with_result_named(line, "handle") or "handle = tensor.register_hook(hook)")
        + "\n...\nhandle.remove()  # or register it once",
        confidence="hint",
        slug="hooks-pile-up",
    )


# --- function input written -----------------------------------------------------------------------
#
# The forward of a custom Function wrote an input in place, and did not call ``mark_dirty``.


_AT_MOST: Final = 3


class _Written(NamedTuple):
    """A write to an input of a custom Function."""

    node: Node
    op: Op
    line: SourceLocation  # in the Function's forward
    storage_id: int


@rule(
    "function-input-written",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="sparse_parts_written",
    at_most=_AT_MOST,
    needs={"ops"},
)
def function_input_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each custom Function whose forward wrote a differentiable input."""
    reported = set()
    for node in sorted(evidence.analysis.graph.nodes.values(), key=lambda each: each.order):
        if node.name in reported or node.node_id not in evidence.analysis.custom_functions:
            continue
        found = _written(evidence, node)
        if found is not None:
            reported.add(node.name)
            yield _input_written(evidence, found)


def _written(evidence: Evidence, node: Node) -> _Written | None:
    """Return the first write of a node's forward to an input that was not marked as dirty."""
    clean = _inputs(evidence, node) - _dirty(evidence, node)
    if not clean:
        return None
    for op in ops_within(evidence, *forward_of(evidence, node)):
        written = storages(op.written) & clean
        if not written or op.phase != "forward" or op.thread != node.thread:
            continue
        line = frame_in(evidence, op, class_name(evidence, node), "forward")
        if line is not None and line in evidence.analysis.user_stack(op.stack_id):
            return _Written(node, op, line, min(written))
    return None


def _inputs(evidence: Evidence, node: Node) -> set[int]:
    """Return the storages of the inputs for which a node computes gradients."""
    graph = evidence.analysis.graph
    found: set[int] = set()
    for edge in evidence.edges_from[node.node_id]:
        target = graph.nodes[edge.target]
        if target.parameter is not None:
            found |= storages((target.parameter.tensor,))
        elif target.op is not None and edge.input < len(target.op.outputs):
            found |= storages((target.op.outputs[edge.input],))
    return found


def _dirty(evidence: Evidence, node: Node) -> set[int]:
    """Return the storages of the inputs that a node's forward marked as dirty."""
    analysis = evidence.analysis
    return storages(
        analysis.tensors[tensor_id]
        for event in analysis.log.of(FunctionMarked)
        if event.mark == "mark_dirty" and event.sequence_nr == node.sequence_nr
        for tensor_id in event.tensor_ids
    )


def _input_written(evidence: Evidence, found: _Written) -> Draft:
    node, op = found.node, found.op
    name = class_name(evidence, node)
    slot = next((s for s in node.saved if s.tensor.storage_id == found.storage_id), None)
    tensor = next(t for t in op.written if t.storage_id == found.storage_id)
    called = applied_at(evidence, node)
    return Draft(
        title=f"{name}.forward writes its input in place, and did not mark it as dirty",
        culprit=found.line,
        victim=called or node,
        explanation=[
            f"{op.name} in the forward of {name} wrote an argument ({describe_tensor(tensor)}) "
            "that requires a gradient:",
            found.line,
            "The caller still has this tensor, with the new values and the graph that computed "
            "the old ones:"
            if called is not None
            else "",
            called,
            f'{node.name} saved the same memory as "{slot.slot}": its backward reads the new '
            "values."
            if slot is not None
            else "",
            "Without ctx.mark_dirty autograd does not know of the write, so nothing was raised.",
        ],
        fix="x = x * w  # a new tensor; or ctx.mark_dirty(x), and save what backward needs before",
        confidence="likely",
        evidence=(op, node, slot),
    )


# --- A gradient is not the one that follows from the forward; needs ``record(verify=True)`` -------


_MEANINGS: Final = {
    "node": "Its op ran again on copies of the inputs that it had in the forward; the derivative "
    "there is another one.",
    "edge": "Something changed the gradient on its way: a hook or a backward that wrote it in "
    "place.",
    "leaf": "Something else wrote `.grad`, or replaced it, during the backward.",
}
_OF_FUNCTION: Final = (
    "The operators of its forward ran again with gradients. Its backward returned another gradient:"
)
_MOST_NAMES: Final = 6


@rule(
    "gradient-not-derivative",
    mechanism="change",
    when=NoError(),
    group="saved tensor",
    after="silent-write",
    only_new_lines=True,
)
def gradient_not_derivative(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first wrong gradient, in the order of backward."""
    for event in evidence.analysis.log.of(GradientFactFailed):
        if event.changed_by:
            continue
        fact = read_fact(evidence, event)
        node = evidence.analysis.graph.nodes[event.node_id]
        name = evidence.analysis.custom_functions.get(node.node_id)
        is_custom = fact.fact == "node" and name is not None
        backward = backward_line(evidence.analysis, name) if is_custom and name else None
        yield Draft(
            title=fact.statement[0].upper() + fact.statement[1:],
            culprit=fact.writer or backward or fact.location,
            victim=fact.location,
            explanation=[
                _OF_FUNCTION if is_custom else _MEANINGS[fact.fact],
                backward or fact.location,
                "This line wrote what the node needs, after the forward:" if fact.writer else "",
                fact.writer,
                _reach(fact),
                "It is the first wrong gradient of the backward, and so the place of the error.",
            ],
            fix="# correct the backward, or what it reads"
            if is_custom
            else "# keep what backward needs unchanged; trace.certificate() lists all of it",
            confidence="certain" if fact.writer is not None and fact.saved_tensor else "likely",
            evidence=(event, node, node.op),
        )
        return


def _reach(fact: FailedFact) -> str:
    names = list(fact.parameters[:_MOST_NAMES])
    more = len(fact.parameters) - len(names)
    if not names:
        return ""
    return f"It reaches {', '.join(names)}{f' and {more:,} more' if more else ''}."


# --- A backward read other content than its forward, in a node whose slots show no content --------
#
# Slots of custom Functions and of ``torch._foreach_*`` have no fingerprint. The inputs of the ops
# that their forward and backward ran have one.


class _Seen(NamedTuple):
    """A tensor that an op read or returned, with its fingerprint at that time."""

    op: Op
    tensor: Tensor
    content: int


@rule(
    "silent-write",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="sparse_parts_written",
)
def backward_read_modified(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first tensor whose content changed between forward and backward."""
    ran: dict[int, list[Op]] = defaultdict(list)
    for op in evidence.analysis.ops:
        if op.backward_node_id is not None and op.phase == "backward" and op.input_hashes:
            ran[op.backward_node_id].append(op)
    for node_id in sorted(ran):
        node = evidence.analysis.graph.nodes.get(node_id)
        found = _changed(evidence, node, ran[node_id]) if node is not None else None
        if node is not None and found is not None:
            yield _opaque_input_written(evidence, node, *found)


def _changed(evidence: Evidence, node: Node, backward: list[Op]) -> tuple[_Seen, _Seen] | None:
    """Return the first tensor that a node's backward read with other content than its forward."""
    before = {met.tensor.tensor_id: met for met in reversed(_seen_in_forward(evidence, node))}
    written: set[int | None] = set()
    for op in backward if before else ():
        for met in _inputs_of(op):
            first = before.get(met.tensor.tensor_id)
            if first is None or met.tensor.storage_id in written:
                continue
            if met.content != first.content and _silent(evidence, node, first, met):
                return first, met
        written |= {tensor.storage_id for tensor in op.written}
    return None


def _seen_in_forward(evidence: Evidence, node: Node) -> list[_Seen]:
    """Return the inputs of a node's forward, and for foreach ops their results."""
    if node.op is not None:
        if node.op.name.startswith("_foreach_"):
            return [*_inputs_of(node.op), *_outputs_of(node.op)]
        return []
    owner = class_name(evidence, node)
    if owner == node.name or node.name.rstrip("0123456789") != node.name:
        return []  # not a custom Function: PyTorch numbers its own nodes
    first, last = forward_of(evidence, node)
    ops = [
        op
        for op in ops_within(evidence, first, last)
        if op.phase != "backward" and frame_in(evidence, op, owner, "forward") is not None
    ]
    touched = {tensor.storage_id for op in ops for tensor in op.written}
    return [met for op in ops for met in _inputs_of(op) if met.tensor.storage_id not in touched]


def _inputs_of(op: Op) -> list[_Seen]:
    pairs = zip(op.inputs, op.input_hashes, strict=False)
    return [_Seen(op, tensor, content) for tensor, content in pairs if content != NO_ID]


def _outputs_of(op: Op) -> list[_Seen]:
    pairs = zip(op.outputs, op.output_hashes, strict=False)
    return [_Seen(op, tensor, content) for tensor, content in pairs if content != NO_ID]


def _writes(evidence: Evidence, node: Node, before: _Seen, after: _Seen) -> list[Op]:
    """Return the writes between two reads that are not the backward's own."""
    between = evidence.writes_between(after.tensor.storage_id, before.op.seq, after.op.seq)
    return [write for write in between if write.backward_node_id != node.node_id]


def _silent(evidence: Evidence, node: Node, before: _Seen, after: _Seen) -> bool:
    """Return whether no other rule reports this change."""
    saved = node.op is not None or any(
        each.tensor.storage_id == after.tensor.storage_id for each in node.saved
    )
    if _writes(evidence, node, before, after):
        return saved  # else an attribute of ctx that an op wrote
    # A square matrix and its transpose share memory and shape, and differ in content.
    sizes = [size for size in after.tensor.shape if size > 1]
    return len(sizes) == len(set(sizes))


def _opaque_input_written(evidence: Evidence, node: Node, before: _Seen, after: _Seen) -> Draft:
    write = next(iter(_writes(evidence, node, before, after)), None)
    culprit = (
        write.location
        if write is not None
        else write_before_read(evidence, before.op, after.op.seq)
    )
    name = evidence.name_of(after.tensor.storage_id) if after.tensor.storage_id is not None else ""
    victim = node.location or before.op.location
    return Draft(
        title=f"{name or f'A tensor that {node.name} needs'} was written before backward, past "
        "the version check",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"The forward of {node.name}{in_module(node.module)} read "
            f"{describe_tensor(before.tensor)}:",
            before.op,
            f"Then {write.name} at {short_location(culprit)} wrote the same memory:"
            if write is not None
            else "Its content changed without a recorded write."
            + (" The source contains such a write:" if culprit is not None else ""),
            culprit,
            bypass_reason(write),
            f"so nothing was raised when its backward read it, in {after.op.name}: the "
            "gradient was computed from the new values.",
        ],
        fix=silent_write_fix(evidence, write, culprit),
        # A kernel inside a custom forward is not recorded.
        confidence="hint" if write is None else "certain" if culprit is not None else "likely",
        evidence=(before.op, write, after.op, node),
    )
