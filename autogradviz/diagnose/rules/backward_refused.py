"""Rules: a backward or a gradient that PyTorch refused."""

from __future__ import annotations

import ast
import math
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.blame.gradients_lost import (
    CREATING,
    NumberReads,
    find_detach,
    find_requires_grad_off,
    is_made_of_literals,
)
from autogradviz.diagnose.blame.gradients_returned import corrected_return
from autogradviz.diagnose.blame.search_gradient_cuts import CutSearch
from autogradviz.diagnose.blame.tensors_carried_between_steps import (
    CarriedGraph,
    find_carried_graph,
    find_shared_tensor,
)
from autogradviz.diagnose.evidence.custom_functions import applied_at, class_name
from autogradviz.diagnose.evidence.reentrant_regions import find_captured_graph
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow
from autogradviz.diagnose.finding_text import (
    NOT_RECORDED,
    describe_op,
    in_module,
    join_names,
    short_location,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.operands_changed_as_fixes import (
    updated_in_place,
    with_gradient_required,
    with_value_changed,
)
from autogradviz.events import BackwardStarted, HookRan, NodeFinished, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Hook, Node, Op, SourceLocation
    from autogradviz.analysis.types import RaisedError
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A second backward needs a graph that the first one freed -------------------------------------


@rule(
    "graph-freed",
    mechanism="free",
    when=ErrorMessage("Trying to backward through the graph a second time"),
    group="backward raised",
    after="reentrant-captured-graph",
)
def graph_freed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first backward, or for the tensor that kept the old graph."""
    if find_captured_graph(evidence) is not None:
        return  # reentrant-captured-graph explains it
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    first = evidence.first_backward(node) if node is not None else None
    carried = _carried(evidence, node) if node is not None else None
    second = evidence.raised_at()
    location = node.location if node is not None else None
    shared = None
    if (
        carried is not None and node is not None and not carried.reuse.repeats
    ):  # two losses of one step share a tensor
        shared = find_shared_tensor(evidence, carried.reuse, node, _ran_with(evidence, node))
        carried = None
    # That it was freed is certain. Without a tensor that was carried, either of two lines can be
    # changed: the first backward keeps the graph, or the second has a graph of its own. A line that
    # starts backwards of several losses says nothing about what they share.
    same = node is not None and first == second and _of_one_loss(evidence, node)
    sure = carried.sure if carried is not None else same
    yield Draft(
        title="A second backward needs a graph that the first one freed",
        culprit=(carried.culprit if carried is not None else None)
        or (shared.location if shared is not None else None)
        or first
        or second,
        victim=location or second,
        explanation=[
            f"This backward ran {node.name if node else 'the graph'}"
            f"{in_module(node.module if node else '')} and freed its saved tensors:"
            if first is not None
            else "An earlier backward freed the saved tensors of the graph.",
            first,
            "This one needs them again:",
            second,
            f"They were saved at {short_location(location)}." if location is not None else "",
            *(carried.lines() if carried is not None else ()),
            *(shared.lines() if shared is not None else ()),
        ],
        fix=carried.fix_after(first)
        if carried is not None
        else shared.fix
        if shared is not None
        else "loss.backward(retain_graph=True)  # in the first backward, or add the losses\n"
        "# and call backward() once",
        confidence="certain" if sure and shared is None else "likely",
        evidence=(carried.reuse.after if carried is not None else None, error, node),
        region_id=node.region_id if node is not None else None,
    )


def _first_run(
    evidence: Evidence, freed: Node
) -> tuple[NodeFinished | None, BackwardStarted | None]:
    """Return the end of the first run of a node, and its backward."""
    runs = evidence.analysis.log.of(NodeFinished)
    run = next((event for event in runs if event.node_id == freed.node_id), None)
    return run, evidence.backward(run.backward_id) if run is not None else None


def _ran_with(evidence: Evidence, freed: Node) -> set[int]:
    """Return the nodes that the first backward which ran a node ran."""
    run, _ = _first_run(evidence, freed)
    rows = evidence.analysis.log.fields(NodeFinished, "node_id", "backward_id")
    return {node_id for node_id, each in rows if run is not None and each == run.backward_id}


def _of_one_loss(evidence: Evidence, freed: Node) -> bool:
    """Return whether the backward that freed a node and the one that failed have the same roots."""
    error = evidence.analysis.error
    second = evidence.backward(error.backward_id) if error is not None else None
    _, first = _first_run(evidence, freed)
    return first is not None and second is not None and first.root_ids == second.root_ids


def _carried(evidence: Evidence, freed: Node) -> CarriedGraph | None:
    """Return the graph of a freed node that the second backward got to."""
    error = evidence.analysis.error
    run, first = _first_run(evidence, freed)
    if run is None or first is None or error is None:
        return None
    stack = evidence.analysis.user_stack(first.stack_id)
    return find_carried_graph(evidence, freed, run.seq, stack, error.backward_id)


# --- backward without graph -----------------------------------------------------------------------
#
# Backward was called on a tensor without a graph. Find the operator at which the graph ended.


_NO_BACKWARD: Final = "object has no attribute 'backward'"
_OF_NUMBER: Final = re.compile(r"'(?:float|int|bool|complex|numpy\.\w+)' object")


@rule(
    "graph-lost",
    mechanism="cut",
    when=ErrorMessage(("does not require grad and does not have a grad_fn", _NO_BACKWARD)),
    group="operation refused",
)
def graph_lost(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the operator after which the loss had no graph."""
    error = evidence.analysis.error
    if error is not None and _NO_BACKWARD in error.message:
        if _OF_NUMBER.match(error.message):
            yield from _of_number(evidence, error)
        return
    started = evidence.analysis.log.of(BackwardStarted)
    if not started:
        return
    search = CutSearch(evidence)
    ends = _path_ends(evidence, search, started[-1])
    if not ends:
        drafts = list(_frozen(evidence))
        ends = [] if drafts else _of_detaches(evidence, search)
        yield from drafts or ([] if ends else [_without_leaf(evidence, search)])
    if ends:
        yield _ended(evidence, ends)


def _path_ends(evidence: Evidence, search: CutSearch, started: BackwardStarted) -> list[End]:
    """Return the ends of the gradient paths to the roots, the last one first."""
    analysis, graph = evidence.analysis, evidence.causal_graph
    cuts = search.of_loss(started)
    ops = {index: analysis.op_at(graph.op_seqs[index]) for cut in cuts for index in cut.ops}
    ends = [End(cut.kind, op, cut.location) for cut in cuts if (op := ops[max(cut.ops)])]
    for index in reversed(search.unexplained):
        op = analysis.op_at(graph.op_seqs[index])
        place = find_detach(evidence, op, started) if op is not None else None
        if op is not None and place is not None:
            return [End("detach", op, place, guessed=True)]
    if any(number is not None for number in graph.numbers):
        ends += _of_sources(evidence, search, is_known=bool(ends))
    found = sorted(ends or _of_modes(evidence, search), key=lambda end: -end.op.seq)
    return _numbers_before_detach(evidence, found)


def _numbers_before_detach(evidence: Evidence, ends: list[End]) -> list[End]:
    """Return ends with one at Python numbers first, if other parameters are behind a detach.

    ``detach()`` says that its parameters are to get no gradient, as those of a critic. They are
    none of those that the loss is for.
    """
    line = ends[0].culprit if ends and ends[0].kind == "detach" else None
    if line is None or ".detach()" not in _text(line):
        return ends
    graph = evidence.causal_graph

    def behind(end: End) -> set[int]:
        return graph.parameters_behind(bisect_left(graph.op_seqs, end.op.seq))

    meant = behind(ends[0])
    lost = [e for e in ends if e.kind in {"number", "numbers"} and behind(e) - meant]
    return [*lost, *(e for e in ends if e not in lost)]


def _of_modes(evidence: Evidence, search: CutSearch) -> list[End]:
    """Return the ends of paths at ops that ran while gradients were disabled."""
    analysis, flow = evidence.analysis, Flow(evidence)
    ops = [analysis.op_at(evidence.causal_graph.op_seqs[index]) for index in search.passed]
    ends = [flow.end_at(op, set()) for op in ops if op and not _initial(evidence, op)]
    return [end for end in ends if end is not None and end.kind == "mode"][-1:]


def _of_sources(evidence: Evidence, search: CutSearch, *, is_known: bool) -> list[End]:
    """Return the ends of paths at tensors that are created from numbers, or from nothing."""
    analysis, graph, reads = evidence.analysis, evidence.causal_graph, NumberReads(evidence)
    indices = [index for index in search.sources if index != NO_OP]
    ops = [op for index in indices if (op := analysis.op_at(graph.op_seqs[index]))]
    found = [end for op in ops if (end := reads.of(op))]
    if found or is_known:
        return found
    only = NO_OP not in search.sources and len({op.stack_id for op in ops}) == 1
    created = [op for op in ops if op.name in CREATING or op.seq == max(o.seq for o in ops)]
    return [
        End("constant" if only and _is_constant(op) else "fresh", op, op.location) for op in created
    ]


def _of_detaches(evidence: Evidence, search: CutSearch) -> list[End]:
    """Return the detaches behind a loss, of tensors that no op with a node had read before.

    Whether such a tensor requires a gradient is not recorded.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    found = []
    for index in search.passed:
        op = analysis.op_at(graph.op_seqs[index])
        if op is None or op.name != "detach" or op.phase != "forward":
            continue
        made = max(graph.producers(index), default=NO_OP)
        if made == NO_OP or graph.stacks[made] != graph.stacks[index]:  # torch.tensor calls it
            found.append(End("detach", op, op.location, guessed=True))
    return sorted(found, key=lambda end: -end.op.seq)


def _as_leaves(made: list[Op]) -> str:
    """Return the statements that make tensors of numbers, with a gradient required; "" if unknown.

    Which of them is to be trained is for the program to say.
    """
    changed = dict.fromkeys(
        with_value_changed(op.location, "{}.requires_grad_()")
        for op in made
        if op.outputs and op.outputs[0].dtype.startswith("float")
    )
    found = [each for each in changed if each is not None]
    if not found or None in changed or len(found) > _MOST_LEAVES:
        return ""
    ask = "# compute the loss from what is trained"
    return "\n".join(
        [f"{ask}, or if it is {'this' if len(found) == 1 else 'one of these'}:", *found]
    )


_MOST_LEAVES: Final = 2  # in a fix


def _without_leaf(evidence: Evidence, search: CutSearch) -> Draft:
    """Return the draft of a loss that no tensor with a gradient is known behind."""
    analysis, graph = evidence.analysis, evidence.causal_graph
    ops = [analysis.op_at(graph.op_seqs[i]) for i in search.sources if i != NO_OP]
    made = [op for op in ops if op is not None and not _initial(evidence, op)]
    only = made if NO_OP not in search.sources else []
    op = max(only, key=lambda op: op.seq, default=None)
    return Draft(
        title="The loss has no graph: no tensor behind it requires a gradient",
        culprit=op if op is not None else evidence.raised_at(),
        victim=evidence.raised_at(),
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            evidence.raised_at(),
            "It is computed from tensors that are created here:" if only else "",
            *dict.fromkeys(op.location for op in only),
            "A gradient needs a tensor with requires_grad=True, such as a parameter of a model, on "
            "the way to the loss.",
        ],
        fix=_as_leaves(only)
        or "# compute the loss from what is trained, or: tensor.requires_grad_()",
        confidence="likely",
        evidence=(op, analysis.error),
    )


def _is_constant(op: Op) -> bool:
    """Return whether the values of a new tensor are written in the source."""
    return op.name not in CREATING or (op.location is not None and is_made_of_literals(op.location))


def _initial(evidence: Evidence, op: Op) -> bool:
    """Return whether an operator initialized a parameter."""
    return any(
        "/torch/nn/init" in place.filename.replace("\\", "/")
        for place in evidence.analysis.stack(op.stack_id)
    )


def _ended(evidence: Evidence, ends: list[End]) -> Draft:
    end, *others = ends
    victim = evidence.raised_at()
    around = end.kind == "mode" and _is_off_at_backward(evidence, end)
    return Draft(
        title="The loss has no graph: it is computed from no tensor"
        if end.kind == "constant"
        else f"The loss has no graph: it ended at {end.name}",
        culprit=end.culprit,
        victim=victim,
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            victim,
            "It was created here:" if end.kind == "constant" else "Its gradient path ends here:",
            end.culprit,
            _operator(end),
            end.reason,
            *(["It ends here as well:", *(other.culprit for other in others)] if others else []),
            "Gradients were still disabled where the gradient was requested: a function that "
            "requests its own can compute with torch.enable_grad()."
            if around
            else "",
        ],
        fix=end.fix,
        # A single end is the cause; of several, the log does not show which one was intended. Of a
        # block without gradients, either the block or the statement in it can be moved.
        confidence="likely"
        if others or end.guessed or end.kind in {"fresh", "mode"}
        else "certain",
        evidence=(end.op, evidence.analysis.error),
    )


def _is_off_at_backward(evidence: Evidence, end: End) -> bool:
    """Return whether what disabled gradients for an op also did so for the last backward."""
    flow, started = Flow(evidence), evidence.analysis.log.of(BackwardStarted)[-1]
    thread = end.op.thread
    mode = flow.mode_off(thread, end.op.seq)
    return mode is not None and mode is flow.mode_off(thread, started.seq)


def _of_number(evidence: Evidence, error: RaisedError) -> Iterator[Draft]:
    """Yield a draft if backward was called on a Python number that was read from a tensor."""
    stack = [place for place in evidence.error_stack() if place.filename in evidence.user_files]
    end = NumberReads(evidence).before(error.seq, stack)
    if end is None:
        return
    read = f"It was read from a tensor with a graph, by {end.name}:"
    yield Draft(
        title=f"The loss is a number, which has no backward: it was read by {end.name}",
        culprit=end.culprit,
        victim=error.location,
        explanation=[
            "Backward was called on a number:",
            error.location,
            read,
            end.culprit,
            end.reason,
        ],
        fix=end.fix,
        confidence="likely",
        evidence=(end.op, error),
    )


def _operator(end: End) -> str:
    if end.op.location == end.culprit:
        return f"The operator: {describe_op(end.op)}"
    return f"Inside it, this operator made no node: {describe_op(end.op)}"


def _frozen(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if requires_grad of the leaves was set to False."""
    frozen = [e for e in evidence.analysis.log.of(RequiresGradChanged) if not e.requires_grad]
    seen = evidence.analysis.location(frozen[-1].stack_id) if frozen else None
    culprit = seen or find_requires_grad_off(evidence)
    if culprit is None and not frozen:
        return
    named = (evidence.analysis.parameters.get(event.tensor_id, ("",))[0] for event in frozen)
    names = [name for name in named if name]
    yield Draft(
        title=f"The loss has no graph: requires_grad of {len(frozen) or 'its'} leaves was set to "
        "False",
        culprit=culprit,
        victim=evidence.raised_at(),
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            evidence.raised_at(),
            f"requires_grad was set to False for {join_names(names) or 'leaves'}:",
            culprit or NOT_RECORDED,
            "No other input of the loss requires a gradient.",
        ],
        fix=f"{changed}  # for what is to be trained"
        if (changed := with_gradient_required(culprit)) is not None
        else "# freeze some parameters only, or none: parameter.requires_grad_(True)",
        confidence="likely",
        evidence=(*frozen[-1:], evidence.analysis.error),
    )


# --- backward without an argument, of a tensor with several elements ------------------------------


@rule(
    "loss-not-scalar",
    mechanism="refuse",
    when=ErrorMessage("grad can be implicitly created only for"),
    group="operation refused",
)
def loss_not_scalar(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the last result with several elements that no other op read.

    If it is a sum of numbers and one term of several elements, the line that made the term.
    """
    error = evidence.analysis.error
    read: set[int] = set()
    found = None
    for op in reversed(evidence.analysis.ops):
        if op.phase != "forward" or error is None or op.seq > error.seq:
            continue
        unread = (each.shape for each in op.outputs if each.tensor_id not in read)
        shape = next((each for each in unread if math.prod(each) != 1), None)
        if op.location is not None and shape is not None:
            found = op
            break
        read |= {each.tensor_id for each in op.inputs}
    if found is None:
        return
    term = _only_term_with_elements(evidence, found)
    yield Draft(
        title=f"Backward needs one number, and the loss has the shape {shape}",
        culprit=term or found,
        victim=evidence.raised_at(),
        explanation=[
            "Without an argument, backward starts at a loss of one element:",
            evidence.raised_at(),
            "This line computed the last tensor that nothing else reads, which has more:",
            found,
            "It is a sum of numbers and of this term, the only one with more elements:"
            if term is not None
            else "",
            term,
        ],
        fix='loss.mean().backward()  # or .sum(), or without reduction="none"'
        if term is None
        else "# reduce this term as the others: .mean() or .sum()",
        confidence="likely",
        evidence=(term or found, error),
    )


_ADDING: Final = frozenset({"add", "sub", "add_", "sub_", "rsub"})


def _only_term_with_elements(evidence: Evidence, total: Op) -> Op | None:
    """Return the op of another line that made the only term of a sum with several elements.

    The other terms are numbers that were computed with a graph. None if there is no such term.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    at = bisect_left(graph.op_seqs, total.seq)
    terms = 0
    while at != NO_OP and graph.op_names[at] in _ADDING and len(graph.inputs[at]) > 1:
        made = graph.producers(at)
        large = [
            position for position, each in enumerate(graph.inputs[at]) if graph.size([each]) != 1
        ]
        numbers = [each for position, each in enumerate(made) if position not in large]
        if len(large) != 1 or NO_OP in numbers or None in [graph.numbers[n] for n in numbers]:
            break
        terms += len(numbers)
        at = made[large[0]]
    found = analysis.op_at(graph.op_seqs[at]) if terms and at != NO_OP else None
    return found if found is not None and found.location != total.location else None


# --- ``.grad`` of a tensor that is no leaf is None: find the line that computed the tensor --------


@rule(
    "gradient-of-non-leaf",
    mechanism="cut",
    when=ErrorMessage("NoneType"),
    group="operation refused",
)
def gradient_of_non_leaf(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a line failed that reads ``.grad``, and a tensor replaced a leaf."""
    line = evidence.raised_at()
    names = _read_gradients(line) if line is not None else set()
    if not names:
        return
    made = _rebound(evidence, line, names) or _from_lost_leaf(evidence)
    if made is None:
        return
    again = made.location == line
    yield Draft(
        title="The gradient is None: its tensor is not a leaf",
        culprit=made.location,
        victim=line,
        explanation=[
            "This line reads .grad, which is None:",
            line,
            "It computed that tensor itself, one iteration earlier."
            if again
            else "This line makes a leaf and computes another tensor from it:",
            None if again else made,
            "The result has a graph, and backward stores no gradient in it. The leaf that got the "
            "gradient is lost.",
        ],
        fix="with torch.no_grad():\n    "
        + (updated_in_place(made.location) or "weight -= rate * weight.grad")
        if again
        else "weight = (torch.randn(3) * 0.1).requires_grad_()",
        confidence="likely",
        evidence=(evidence.analysis.error, made),
    )


def _read_gradients(line: SourceLocation) -> set[str]:
    """Return the expressions whose ``.grad`` a line reads, as in source."""
    return {
        ast.unparse(part.value)
        for node in source.simple_statements(line)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr == "grad"
    }


def _rebound(evidence: Evidence, line: SourceLocation | None, names: set[str]) -> Op | None:
    """Return the op of a line that assigned its result to a name whose gradient it reads."""
    if line is None:
        return None
    assigned = {
        ast.unparse(target)
        for node in source.simple_statements(line)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    if not assigned & names:
        return None
    ops = (op for op in evidence.analysis.ops if op.location == line and op.sequence_nr is not None)
    return next(ops, None)


def _from_lost_leaf(evidence: Evidence) -> Op | None:
    """Return an op on a leaf that the same line created, which therefore has no name."""
    creators = evidence.analysis.creators
    for op in evidence.analysis.ops:
        if op.sequence_nr is None or op.location is None or op.phase != "forward":
            continue
        made = (creators.get(each.storage_id) for each in op.inputs if each.storage_id is not None)
        if "requires_grad" in _text(op.location) and any(
            each is not None and each.sequence_nr is None and each.location == op.location
            for each in made
        ):
            return op
    return None


def _text(line: SourceLocation) -> str:
    return source.location(line.filename, line.lineno, line.function).text


# --- function or hook gradient rejected -----------------------------------------------------------
#
# The engine rejected what a custom backward or a hook returned. Find the line that returned it.


_ONCE: Final = "once_differentiable"


@rule(
    "gradient-refused",
    mechanism="change",
    when=ErrorMessage(
        (
            "returned an incorrect number of gradients",
            "returned a gradient different than None at position",
            "returned an invalid gradient at index",
            "expected Variable or None (got",
        )
    ),
    group="backward raised",
)
def function_gradient_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the return statement of a custom Function's backward."""
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    assert error is not None
    node = nodes.get(error.node_id) if error.node_id is not None else None
    if node is None:
        return
    name = class_name(evidence, node)
    returns = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        if f".{function}".endswith(f".{name}.backward")
        for line in _returns(owner)
    ]
    if returns:
        victim = applied_at(evidence, node) or node.location
        sentence, fix = corrected_return(
            evidence, node, returns[-1], error.message, is_only=len(returns) == 1
        )
        yield Draft(
            title=f"The backward of {name} returned an invalid gradient",
            culprit=returns[-1],
            victim=victim,
            explanation=[
                "It returns here:",
                returns[-1],
                sentence,
                "A backward returns one gradient for each argument of forward after ctx, in that "
                "order: a tensor of that argument's shape, or None.",
                *_used_at(victim),
            ],
            fix=fix,
            confidence="certain" if len(returns) == 1 else "likely",
            evidence=(error, node),
        )


@rule(
    "gradient-refused",
    mechanism="change",
    when=ErrorMessage(("hook returned", "has changed the size", "has changed the type")),
    group="backward raised",
)
def hook_gradient_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the return statement of the hook that ran last."""
    runs = evidence.analysis.log.of(HookRan)
    hook = next(
        (h for h in evidence.analysis.hooks if runs and h.hook_id == runs[-1].hook_id), None
    )
    if hook is None:
        return
    victim = evidence.raised_at()
    line = _hook_return(evidence, hook) or hook.location
    nodes = (evidence.analysis.graph.nodes.get(node_id) for node_id in hook.node_ids[:1])
    yield Draft(
        title=f"The hook {hook.name} returned an invalid gradient",
        culprit=line,
        victim=victim,
        explanation=[
            f"It was registered at {short_location(hook.location)}, and returns:",
            line,
            "The result of a hook replaces the gradient: a tensor of the same shape and type, or "
            "None to leave the gradient as it is.",
            *_used_at(victim),
        ],
        fix="return None  # if the hook does not change the gradient",
        evidence=(evidence.analysis.error, *nodes),
    )


@rule(
    "gradient-refused", mechanism="change", when=ErrorMessage(f"@{_ONCE}"), group="backward raised"
)
def once_differentiable_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the decorator ``once_differentiable`` of a backward."""
    graphs = [e for e in evidence.analysis.log.of(BackwardStarted) if e.create_graph]
    decorators = [
        source.location(filename, decorator.lineno, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        for decorator in getattr(owner, "decorator_list", ())
        if _ONCE in ast.unparse(decorator)
    ]
    if not decorators:
        return
    first = evidence.analysis.location(graphs[-1].stack_id) if graphs else None
    victim = first or evidence.raised_at()
    yield Draft(
        title="A backward marked as once differentiable was differentiated twice",
        culprit=decorators[0],
        victim=victim,
        explanation=[
            "This backward is marked:",
            decorators[0],
            "Its gradient was computed with create_graph=True:",
            first,
            f"and that graph was differentiated at {short_location(evidence.raised_at())}.",
            *_used_at(victim),
        ],
        fix="# write backward with differentiable operators, and remove the decorator",
        confidence="certain" if len(decorators) == 1 else "likely",
        evidence=(evidence.analysis.error,),
    )


def _used_at(victim: SourceLocation | None) -> tuple[str | SourceLocation, ...]:
    return ("Used at:", victim) if victim is not None else ()


def _hook_return(evidence: Evidence, hook: Hook) -> SourceLocation | None:
    """Return the line on which a hook returns, if it has exactly one return statement."""
    found = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        if function and function.endswith(hook.name)
        for line in _returns(owner)
    ]
    return found[0] if len(found) == 1 else None


def _returns(owner: ast.AST) -> list[int]:
    """Return the lines of a function's return statements that have a value, in order."""
    return sorted(
        node.lineno
        for node in source.own_nodes(owner)
        if isinstance(node, ast.Return) and node.value is not None
    )
