"""Rules: parameters that are frozen, or whose memory is replaced."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.analysis.formatting import plural
from autogradviz.diagnose.blame.gradients_lost import (
    lines_of_requires_grad_off,
    requires_grad_writes,
)
from autogradviz.diagnose.blame.line_candidates import (
    REACHABLE,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.blame.modes_random_numbers_and_hidden_writes import window_until_read
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import (
    NOT_RECORDED,
    in_module,
    join_names,
    short_location,
    slot_name,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.names_of_program_in_fixes import module_in_code
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    NodeStarted,
    ParameterNormRead,
    RequiresGradChanged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Node, Op, SavedTensor, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A leaf's memory was replaced between forward and backward: ``weight.data = ...`` -------------
#
# A node that saved the leaf reads the new memory. The version counter stays with the leaf, and the
# assignment does not count as a write.


@rule("silent-write", mechanism="write", when=NoError(), group="saved tensor", after="silent-write")
def data_reassigned(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first saved leaf whose ``.data`` was replaced before backward."""
    nodes = evidence.analysis.graph.nodes.values()
    leaves = {n.parameter.tensor.tensor_id for n in nodes if n.parameter is not None}
    for node in sorted(nodes, key=lambda n: n.order):
        for saved in node.saved:
            if saved.tensor.tensor_id not in leaves or saved.packed_by != "pytorch":
                continue
            found = _read(evidence, node, saved, leaves)
            if found is not None:
                yield _data_replaced(evidence, node, saved, found)


class _Replaced(NamedTuple):
    """A saved leaf whose memory was replaced."""

    op: Op  # the op that saved it
    read: Op  # the op of the backward that read other memory
    differs: bool  # the content differs, as far as it is known


def _read(evidence: Evidence, node: Node, saved: SavedTensor, leaves: set[int]) -> _Replaced | None:
    """Return the first read of a saved leaf in memory that its op did not use."""
    op = node.op
    if op is None or saved.tensor.storage_id in storages((*op.inputs, *op.outputs)):
        return None
    # The input that was the leaf; other leaves and buffers are unchanged.
    place = next(
        (
            place
            for place, tensor in enumerate(op.inputs)
            if _same_metadata(tensor, saved.tensor)
            and tensor.tensor_id not in leaves
            and tensor.storage_id not in evidence.buffers
        ),
        None,
    )
    if place is None:
        return None
    before = op.input_hashes[place] if op.input_hashes else NO_ID
    for read in evidence.analysis.ops:
        if read.backward_node_id == node.node_id and read.phase == "backward":
            hashes = read.input_hashes or (NO_ID,) * len(read.inputs)
            for tensor, content in zip(read.inputs, hashes, strict=False):
                if tensor.tensor_id == saved.tensor.tensor_id:
                    known = NO_ID not in {before, content}
                    return None if known and content == before else _Replaced(op, read, known)
    return None


def _same_metadata(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _assigned(evidence: Evidence, op: Op, read: Op, tensor_id: int) -> SourceLocation | None:
    """Return the line that assigned ``.data``, or the first that created a later value."""
    window = window_until_read(evidence, op, read.seq)
    assigned = best_line(
        (
            LineCandidate(
                filename,
                node.lineno,
                function,
                window.ran_in_window(filename, function, node.lineno),
                # A context manager's __enter__ ran before its __exit__.
                (not function.endswith("__enter__"),),
            )
            for filename in evidence.user_files
            for function, node in source.nodes(filename)
            if isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Attribute) and t.attr == "data" for t in node.targets)
        ),
        at_least=REACHABLE,
    )
    if assigned is not None:
        return assigned
    made = (
        each.location
        for each in evidence.analysis.ops
        if op.seq < each.seq < read.seq
        and each.phase == "forward"
        and any(tensor.tensor_id == tensor_id for tensor in each.outputs)
    )
    return next(made, None)


def _data_replaced(evidence: Evidence, node: Node, saved: SavedTensor, found: _Replaced) -> Draft:
    op, read, differs = found
    named = evidence.analysis.leaf_name(saved.tensor.tensor_id)
    culprit = _assigned(evidence, op, read, saved.tensor.tensor_id)
    return Draft(
        title=f"{slot_name(saved, node.name)} was given other memory after it was saved",
        culprit=culprit,
        victim=saved.location or node.location,
        explanation=[
            f'{node.name}{in_module(node.module)} saved {named} itself as "{saved.slot}":',
            saved.location or node,
            "Before backward its .data was set to another tensor:",
            culprit,
            "The leaf keeps its version counter, so PyTorch's check passed, and backward "
            "read the new values: the gradient is not that of the computed loss."
            if differs
            else "Where the new values differ from the old ones the gradient is wrong, and "
            "nothing is raised; record(fingerprints=True) compares them.",
        ],
        fix="# set .data after backward(); or give the forward a tensor of its own:\n"
        "# torch.func.functional_call(module, {name: tensor}, inputs)",
        confidence="likely" if differs else "hint",
        evidence=(op, read, node),
    )


# --- parameter frozen -----------------------------------------------------------------------------
#
# Parameters whose requires_grad was set to False before backward, or never set to True again.
#
# Freezing parameters is common, so these are hints.


Changes: TypeAlias = dict[int, list[RequiresGradChanged]]
"""Changes of requires_grad, oldest first, by tensor."""


@rule(
    "leaf-frozen-early",
    "leaf-never-thawed",
    mechanism="cut",
    when=NoError(),
    after="parameter-not-updated",
)
def leaf_frozen(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for gradients of frozen leaves, else for leaves that stayed frozen."""
    changes: Changes = defaultdict(list)
    for event in evidence.analysis.log.of(RequiresGradChanged):
        changes[event.tensor_id].append(event)
    if not changes:
        return
    discarded = list(_discarded_gradients(evidence, changes))
    if discarded:
        yield _frozen_early(evidence, discarded)
    else:
        yield from _never_thawed(evidence, changes)


def _discarded_gradients(
    evidence: Evidence, changes: Changes
) -> Iterator[tuple[Node, RequiresGradChanged, int]]:
    """Yield leaves that backward reached while frozen, and the event of the node's start."""
    nodes = {
        node.parameter.tensor.tensor_id: node
        for node in evidence.analysis.graph.nodes.values()
        if node.parameter is not None
    }
    started: dict[int, list[int]] = defaultdict(list)
    for node_id, seq in evidence.analysis.log.fields(NodeStarted, "node_id", "seq"):
        started[node_id].append(seq)
    for tensor_id, events in changes.items():
        node = nodes.get(tensor_id)
        for seq in started[node.node_id] if node is not None else ():
            last = next((e for e in reversed(events) if e.seq < seq), None)
            if node is not None and last is not None and not last.requires_grad:
                yield node, last, seq
                break


def _frozen_early(
    evidence: Evidence, discarded: list[tuple[Node, RequiresGradChanged, int]]
) -> Draft:
    names = [evidence.analysis.leaf_name(event.tensor_id) for _, event, _ in discarded]
    node, event, reached_seq = discarded[0]
    culprit = _line(evidence, event)
    started = [e for e in evidence.analysis.log.of(BackwardStarted) if e.seq < reached_seq]
    backward = evidence.analysis.location(started[-1].stack_id) if started else None
    uses = [edge.source for edge in evidence.analysis.graph.edges if edge.target == node.node_id]
    victim = evidence.analysis.graph.nodes[uses[0]].location if uses else None
    return Draft(
        slug="leaf-frozen-early",
        title=f"{names[0]} was frozen before backward reached it: its gradient is lost",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{join_names(names)} required a gradient when the forward used "
            f"{'it' if len(names) == 1 else 'them'}:",
            victim,
            "Then requires_grad was set to False:",
            culprit or NOT_RECORDED,
            f"Backward ({short_location(backward)}) computed the gradient and discarded it: a "
            "leaf that requires no gradient accumulates none. Nothing is raised, and .grad does "
            "not change.",
        ],
        fix="# call backward() first, and freeze the parameters afterwards",
        confidence="hint",
        evidence=(event, node),
        parameters=[event.tensor_id for _, event, _ in discarded],
    )


def _never_thawed(evidence: Evidence, changes: Changes) -> Iterator[Draft]:
    """Yield a hint for each line that froze parameters of which only some were unfrozen later.

    A backward must have run in between: freezing all and unfreezing a head at once is normal.
    """
    by_line: dict[int | None, list[int]] = defaultdict(list)
    for tensor_id, events in changes.items():
        if not events[0].requires_grad:
            by_line[events[0].stack_id].append(tensor_id)
    for tensor_ids in by_line.values():
        frozen = [t for t in tensor_ids if not changes[t][-1].requires_grad]
        thawed = [t for t in tensor_ids if changes[t][-1].requires_grad]
        if frozen and thawed and _trained_both_ways(evidence, changes[thawed[0]]):
            yield _left_frozen(evidence, changes, frozen, thawed)


def _trained_both_ways(evidence: Evidence, events: list[RequiresGradChanged]) -> bool:
    """Return whether backwards ran while a leaf was frozen, and after it was unfrozen."""
    frozen, thawed = events[0].seq, events[-1].seq
    started = [event.seq for event in evidence.analysis.log.of(BackwardStarted)]
    return any(frozen < seq < thawed for seq in started) and any(seq > thawed for seq in started)


def _left_frozen(
    evidence: Evidence, changes: Changes, frozen: list[int], thawed: list[int]
) -> Draft:
    freeze, thaw = changes[frozen[0]][0], changes[thawed[0]][-1]
    culprit = _line(evidence, freeze)
    use = next((op for op in evidence.analysis.ops if op.seq > thaw.seq and any(
        t.tensor_id in frozen for t in op.inputs)), None)  # fmt: skip
    count = len(frozen) + len(thawed)
    return Draft(
        slug="leaf-never-thawed",
        title=f"{len(frozen)} of {count} frozen parameters were never unfrozen",
        culprit=culprit,
        victim=use,
        explanation=[
            f"One line froze {count} parameters:",
            culprit or NOT_RECORDED,
            f"{len(thawed)} of them were unfrozen:",
            _line(evidence, thaw) or NOT_RECORDED,
            "These were not, and have not learned since: "
            f"{join_names([evidence.analysis.leaf_name(t) for t in frozen])}.",
        ],
        fix="for parameter in model.parameters():\n    parameter.requires_grad_(True)",
        confidence="hint",
        evidence=(freeze, thaw),
        parameters=frozen,
    )


# --- frozen, and zero -----------------------------------------------------------------------------
#
# A matrix of zeros gives zeros, whatever it is multiplied with. If it is frozen, it has no part in
# the model: an adapter starts with zeros and is to be trained.


_PRODUCTS: Final = frozenset({"mm", "addmm", "bmm", "baddbmm", "mv", "convolution", "mul"})
_MOST_NAMED: Final = 4  # parameters in a fix


@rule(
    "leaf-never-thawed",
    mechanism="cut",
    when=NoError(),
    needs={"ops"},
    after="leaf_frozen",
)
def frozen_zeros(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if a loss is computed with frozen matrices of zeros, and others are trained."""
    analysis, graph = evidence.analysis, evidence.causal_graph
    required = graph.requires_grad
    norms = analysis.log.fields(ParameterNormRead, "tensor_id", "norm")
    zeros = {each for each, norm in norms if norm == 0 and required.get(each) is False}
    if not zeros or not graph.got_gradient:
        return
    trained = {_likeness(analysis, each) for each in graph.got_gradient}
    memory = {graph.memory(each): each for each in zeros}
    uses: dict[int, int] = {}  # the first product with each of them
    for index in sorted(graph.value_slice):
        if graph.op_names[index] in _PRODUCTS and graph.phases[index] == "forward":
            for key in graph.inputs_memory[index]:
                if key in memory:
                    uses.setdefault(memory[key], index)
    found = {
        tensor_id: index
        for tensor_id, index in uses.items()
        # The copy of a model that is trained starts with its zeros.
        if _likeness(analysis, tensor_id) not in trained
        and not evidence.writes_between(
            analysis.tensors[tensor_id].storage_id, graph.op_seqs[index], 1 << 62
        )
    }
    if found:
        yield _of_frozen_zeros(evidence, found)


def _likeness(analysis: Analysis, tensor_id: int) -> tuple[str, tuple[int, ...]]:
    """Return the own name and the shape of a parameter, which those of a copy have, too."""
    return (
        analysis.leaf_name(tensor_id).rpartition(".")[2], analysis.tensors[tensor_id].shape
    )  # fmt: skip


def _of_frozen_zeros(evidence: Evidence, found: dict[int, int]) -> Draft:
    analysis, graph = evidence.analysis, evidence.causal_graph
    owners = {analysis.leaf_name(each).rpartition(".")[0] for each in found}
    frozen = [  # with those that the same modules have
        tensor_id
        for tensor_id, required in graph.requires_grad.items()
        if not required and analysis.leaf_name(tensor_id).rpartition(".")[0] in owners
    ]
    names = list(map(analysis.leaf_name, frozen))
    first = min(found.values())
    changed = [e for e in analysis.log.of(RequiresGradChanged) if e.tensor_id in found]
    recorded = _line(evidence, changed[-1]) if changed else None
    lines_off = [recorded] if recorded is not None else lines_of_requires_grad_off(evidence)
    culprit = lines_off[-1] if lines_off else None
    used = analysis.op_at(graph.op_seqs[first])
    stepped = [event for event in graph.steps if set(event.tensor_ids) & found.keys()]
    lines = [
        f"{module_in_code(analysis, name)}.requires_grad_(True)" for name in names[:_MOST_NAMED]
    ]
    more = len(names) - len(lines)
    if more:
        lines.append(f"# and {plural(more, 'other')} of these modules")
    one = len(found) == 1
    return Draft(
        title=f"{join_names(list(map(analysis.leaf_name, found)))} "
        f"{'is' if one else 'are'} frozen and zero: what {'it is' if one else 'they are'} "
        "multiplied with has no effect",
        culprit=culprit or used,
        victim=used,
        explanation=[
            "The loss is computed with a product of a parameter whose entries are all zero:",
            used,
            "It requires no gradient in any backward, so it stays zero, and the parameters before "
            "the product learn nothing through it.",
            "requires_grad is set to False here:"
            if len(lines_off) == 1
            else "One of these lines sets its requires_grad to False:"
            if lines_off
            else "",
            *lines_off,
            f"{stepped[0].optimizer_name} has it, and skips what has no gradient."
            if stepped
            else "",
            "Parameters that are made before that line and are to be trained, as those of an "
            "adapter, are frozen with the others.",
        ],
        fix="\n".join(lines)
        + (f"  # after {short_location(culprit)}" if culprit is not None else ""),
        confidence="hint",
        evidence=(used, *stepped[:1]),
        parameters=frozen,
    )


def _line(evidence: Evidence, event: RequiresGradChanged) -> SourceLocation | None:
    """Return the line of a change: the recorded one, else the only assignment in the source."""
    recorded = evidence.analysis.location(event.stack_id)
    if recorded is not None:
        return recorded
    found = [
        source.location(filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in requires_grad_writes(filename, on=event.requires_grad)
    ]
    return found[0] if len(found) == 1 else None
