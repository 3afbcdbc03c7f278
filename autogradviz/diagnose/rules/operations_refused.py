"""Rules: an operator that PyTorch refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import plural
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.diagnose.blame.exception_from_grad_none import (
    end_of_gradient,
    raised_by_grad_of_none,
    without_gradient,
)
from autogradviz.diagnose.evidence.operand_origins import (
    Origin,
    failed_op,
    lines_of_constructor,
    operand_origins,
    raised_by_pytorch,
    suspected,
)
from autogradviz.diagnose.evidence.requires_grad_flow import Flow, storages
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_tensor,
    join_names,
    short_location,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source.calls_of_scalers import scaler_call_moved
from autogradviz.diagnose.source.names_of_program_in_fixes import module_in_code
from autogradviz.diagnose.source.operands_changed_as_fixes import (
    in_floating_point,
    with_argument_changed,
    with_indices_of_integers,
    with_operand_changed,
    with_value_changed,
    without_call,
)
from autogradviz.diagnose.source.statements_rewritten_as_fixes import (
    with_argument,
    without_graph_for_numpy,
)
from autogradviz.event_log.match_ops_to_nodes import custom_functions
from autogradviz.events import BackwardEnded, BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- inplace write refused ------------------------------------------------------------------------
#
# In-place writes that PyTorch refuses immediately: the error is at the right line, unexplained.


class _Reason(NamedTuple):
    title: str
    why: str
    fix: str


_REASONS: Final = {  # by a fragment of PyTorch's message
    "leaf Variable that requires grad": _Reason(
        "A leaf that requires grad is written in place",
        "Autograd starts at leaves: a write to one would have to be differentiated, and the "
        "tensor would no longer be a leaf. Views of a leaf (rows, slices, .T) count as the leaf.",
        "with torch.no_grad():\n    {text}",
    ),
    "multiple views": _Reason(
        "One of several views that an op returned together is written in place",
        "unbind, split and chunk return several views of one tensor at once. Autograd can rewrite "
        "the history of one view, not that of its siblings too.",
        "# write out of place, or take the parts one by one (x[0], x[1]); instead of:\n# {text}",
    ),
    "created in no_grad mode": _Reason(
        "A view that was created under no_grad is written with gradients on",
        "The view has no history of its own, and the write would have to change that of its base.",
        "# make the view and write it in the same mode, or clone() the view; instead of:\n# {text}",
    ),
    "created inside a custom Function": _Reason(
        "A view that a custom Function returned is written in place",
        "The function's backward belongs to the returned values, not to the values after the "
        "write.",
        "# return a clone() from the custom Function, or write out of place; instead of:\n# {text}",
    ),
}
_VIEW_OF: Final = re.compile(r"Output \d+ of (\w+?)(?:Backward\d*)? is a view")


@rule(
    "inplace-refused",
    mechanism="refuse",
    when=ErrorMessage(tuple(_REASONS)),
    group="operation refused",
)
def inplace_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an in-place op that raised immediately, or when backward met the view."""
    error, raised = evidence.analysis.error, evidence.raised_at()
    message = error.message if error is not None else ""
    reason = next(reason for fragment, reason in _REASONS.items() if fragment in message)
    views = _views(evidence, message) or _views_of_function(evidence, message)
    ended = evidence.analysis.log.of(BackwardEnded)[-1:]
    in_backward = any(e.failed and raised == evidence.backward_line(e.backward_id) for e in ended)
    write, view = _written_view(evidence, views) if in_backward else (None, None)
    culprit = write.location if write is not None else raised
    victim = view.location if view is not None else next((op.location for op in views), None)
    yield Draft(
        title=reason.title,
        culprit=culprit,
        victim=victim or culprit,
        explanation=[
            "This line raised:",
            raised,
            reason.why,
            "The view was created here:" if victim is not None else "",
            victim,
            *(("Its memory was written here:", write) if write is not None else ()),
        ],
        fix=reason.fix.format(text=culprit.text if culprit is not None else ""),
        confidence="likely" if in_backward else None,
        evidence=(error, write),
    )


def _views(evidence: Evidence, message: str) -> list[Op]:
    """Return the ops that the message names as the origin of the view, the last one first."""
    named = _VIEW_OF.search(message)
    if named is None:
        return []
    stem = re.sub(r"[_\d]", "", named[1]).lower()
    return [op for op in reversed(evidence.analysis.ops) if op.name.replace("_", "") == stem]


def _views_of_function(evidence: Evidence, message: str) -> list[Op]:
    """Return the ops that made views of what a custom Function returned, the last one first.

    The Function is the one that the message names. What it returned has no op: it is what
    ops read that lead to one of its nodes.
    """
    named = _VIEW_OF.search(message)
    of_it = {
        node_id
        for node_id, name in custom_functions(evidence.analysis.log).items()
        if named is not None and name == named[1]
    }
    graph = evidence.causal_graph
    returned = {
        graph.inputs_memory[index][at]
        for index, node in graph.node_of_op.items()
        if len(graph.next_nodes.get(node, ())) == len(graph.inputs[index])
        for at, source in enumerate(graph.next_nodes[node])
        if source in of_it
    }
    found = (
        op
        for index, keys in enumerate(graph.inputs_memory)
        if returned.intersection(keys)
        and not graph.written[index]
        and (op := evidence.analysis.op_at(graph.op_seqs[index])) is not None
        and is_view(op)
    )
    return list(found)[::-1]


def _written_view(evidence: Evidence, views: list[Op]) -> tuple[Op | None, Op | None]:
    """Return the last write to memory of some views after they were made, and the view."""
    found = (
        (write, view)
        for view in views
        for storage_id in storages(view.outputs)
        for write in evidence.writes_between(storage_id, view.seq, 1 << 62)
        if write.phase == "forward" and write.location is not None
    )
    return max(found, key=lambda pair: pair[0].seq, default=(None, None))


# --- A tensor created under ``inference_mode`` is used where autograd records operations ----------


_STORES: Final = re.compile(r"\w+(\.\w+|\[[^\]]*\])+ = ")  # self.cache = ..., table[n] = ...


@rule(
    "inference-tensor",
    mechanism="refuse",
    when=ErrorMessage("nference tensor"),
    group="operation refused",
)
def inference_tensor(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that stored such a tensor, or that enabled inference mode."""
    flow = Flow(evidence)
    made = [
        (line, op)
        for op in reversed(flow.forward)
        if (off := flow.disabling_mode(op)) is not None
        and off.mode == "inference"
        and (line := flow.mode_line(off, op)) is not None
    ]
    raised = evidence.raised_at()
    enabled, op = made[0] if made else (raised, None)
    stored = _stored(evidence, [op for _, op in made])
    mode = ["Such tensors were created under the mode that is enabled here:", enabled]
    store = ["One of them was stored, and is read outside the mode:", stored]
    yield Draft(
        title="A tensor created under inference_mode is used with gradients on",
        culprit=stored.location if stored is not None else enabled,
        victim=raised,
        explanation=[
            "This line raised:",
            raised,
            "Inference tensors have no version counter, so autograd can neither save them nor "
            "track a write to them.",
            *([*mode, f"the last by {describe_op(op)}"] if op is not None else []),
            *(store if stored is not None else []),
        ],
        fix=_without_inference_mode(enabled),
        confidence="likely" if made or raised is None else "certain",
        evidence=(op, evidence.analysis.error),
    )


def _without_inference_mode(enabled: SourceLocation | None) -> str:
    """Return the line that enabled the mode with the mode whose tensors autograd can use."""
    other = "clone() the tensor outside inference_mode"
    if enabled is None or "inference_mode" not in enabled.text:
        return f"# create it under torch.no_grad(), or {other}"
    changed = enabled.text.replace("inference_mode", "no_grad")
    body = "\n    ..." if changed.endswith(":") else ""
    return f"{changed}  # or {other}{body}"


def _stored(evidence: Evidence, made: list[Op]) -> Op | None:
    """Return the op whose result was stored in an attribute or item and read after the mode."""
    numbers = {op.seq for op in made}
    makers = {s: op for op in made for s in storages(op.outputs)}
    for op in evidence.analysis.ops:
        if made and op.seq > made[0].seq and op.seq not in numbers:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                place = makers[storage_id].location
                if place is not None and _STORES.match(place.text):
                    return makers[storage_id]
    return None


# --- an exception of PyTorch that no other rule explains: where the operands come from ------------


_NO_DERIVATIVE: Final = re.compile(r"the derivative for '(?:aten::)?(\w+)' is not implemented")


@rule(
    "operation-refused",
    mechanism="refuse",
    when=ErrorMessage(),
    group="operation refused",
    fallback=True,
)
def operation_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an exception that an op, a backward or a function of PyTorch raised."""
    analysis, error = evidence.analysis, evidence.analysis.error
    if error is None:
        return
    if raised_by_grad_of_none(evidence):
        yield _gradient_is_none(evidence)
        return
    graph = evidence.causal_graph
    failed = failed_op(graph)
    if not raised_by_pytorch(evidence, graph):
        return
    message = next(iter(error.message.strip().splitlines()), "")
    kind = error.type_name.rpartition(".")[2]
    lines: list[str | SourceLocation | None] = ["This line raised:", error.location]
    origins = [] if failed is None else operand_origins(graph, failed)
    for origin in origins:
        assert failed is not None
        tensor = analysis.tensors[graph.inputs[failed][origin.position]]
        what = f"Operand {origin.position + 1} of {graph.op_names[failed]} is "
        what += describe_tensor(tensor) + (f", {origin.name}" if origin.name else "")
        source = f". It has its {origin.what} from this line:" if origin.location else "."
        lines += [what + source, origin.location]
    suspects = [origin.location for origin in suspected(origins)]
    underived = _without_derivative(graph, message)
    if underived is not None and underived != error.location:
        suspects = [underived]
        lines += ["The operator without that derivative is called here:", underived]
    changed = _changed_statement(message, error.location)
    left = _line_that_left_input(evidence, graph, message)
    if left is not None:
        suspects = [left]
        lines += ["The graph of that tensor ends at this line, which no other line replaces:", left]
        numbers = "numpy" in left.text or "tolist" in left.text
        changed = ("" if numbers else without_call(left, "detach", "data")) or (
            "# compute this line from the tensor itself, not from a copy without its graph"
        )
    if failed is not None and not changed:
        changed = _with_integers(graph, failed, error.location)
    if failed is not None and not changed:
        made, changed = _fitting(graph, failed, origins)
        if made is not None:
            suspects = [made, *suspects]
            lines += ["Its module is created here:", made]
    yield Draft(
        title=f"{kind}: {message}"[:200].rstrip(". "),
        culprit=next(iter(suspects), error.location),
        victim=error.location,
        explanation=[*lines, 'trace.why("error") lists the lines that may be changed.'],
        fix=changed
        or (
            "# give the operands the shapes, dtypes, values and graphs that the operator takes"
            if origins
            else '# trace.why("error") lists what this line depends on'
        ),
        confidence="hint",
        evidence=(error,),
    )


_WANTS_INDICES: Final = ("target dtype to be Long", "expected scalar type Long but found")
"""Messages of PyTorch about targets of a loss that are classes, and are not integers."""


_WANTS_FLOATING_POINT: Final = (
    "only tensors of floating point", "you are trying to set requires_grad of a tensor of integer",
)  # fmt: skip
"""Messages of PyTorch about integers that are to require a gradient, in small letters."""
_WITH_INDICES: Final = frozenset({"embedding", "index"})
"""Ops whose second operand is an index."""


def _with_integers(graph: CausalGraph, failed: int, place: SourceLocation | None) -> str:
    """Return the statement with an index of integers, "" if the one that failed was of them."""
    name, given = graph.op_names[failed], graph.inputs[failed]
    if name not in _WITH_INDICES or len(given) != _WITH_INDEX:
        return ""
    if not graph.analysis.tensors[given[1]].dtype.startswith("float"):
        return ""
    op = graph.analysis.op_at(graph.op_seqs[failed])
    module = op.module.rpartition(".")[2] if op is not None and name == "embedding" else ""
    if name == "embedding" and not module:
        return with_operand_changed(place, name, 1, "{}.long()") or ""
    return with_indices_of_integers(place, module) or ""


_WITH_INDEX: Final = 2  # operands


def _changed_statement(message: str, place: SourceLocation | None) -> str:
    """Return the statement that raised as PyTorch's message says to change it, "" if unknown."""
    if "Can't call numpy() on Tensor that requires grad" in message:
        return without_graph_for_numpy(place) or ""
    if "appears to not have been used in the graph" in message:
        changed = with_argument(place, "grad", "allow_unused", value=True)
        return f"{changed}  # the gradient of an unused input is None" if changed else ""
    if any(words in message.lower() for words in _WANTS_FLOATING_POINT):
        return in_floating_point(place) or ""
    if any(words in message for words in _WANTS_INDICES):
        return with_operand_changed(place, "nll_loss", 1, "{}.long()") or ""
    return scaler_call_moved(message, place)


def _fitting(
    graph: CausalGraph, failed: int, origins: list[Origin]
) -> tuple[SourceLocation | None, str]:
    """Return a statement that gives a parameter and what it is combined with one dtype and shape.

    "" if no operand is a parameter, or if the other one has no line.

    Returns:
        The line of a module that is to be created with other sizes, if it is known, and the
        statement.
    """
    tensors = [graph.analysis.tensors[each] for each in graph.inputs[failed]]
    named = [origin for origin in origins if origin.name]
    others = [origin for origin in origins if not origin.name]
    if not named or len(others) != 1:
        return None, ""
    [other], weight = others, named[-1]
    given, wanted = tensors[other.position], tensors[weight.position]
    if given.dtype != wanted.dtype and "dtype" in other.what:
        return None, (
            without_call(other.location, "double", "half", "bfloat16", "long", "int")
            or with_value_changed(other.location, f"{{}}.to(torch.{wanted.dtype})")
            or ""
        )
    name = weight.name.removesuffix(".weight")
    module = graph.analysis.module_by_name.get(name if name != "weight" else "")
    is_product = graph.op_names[failed] in _LINEAR and len(wanted.shape) == _MATRIX
    if not is_product or module is None or module.type_name != "Linear" or not given.shape:
        return None, ""
    features, results = given.shape[-1], wanted.shape[-1]
    if features == wanted.shape[0]:
        return None, ""
    bias = "" if len(named) > 1 else ", bias=False"
    made = f"torch.nn.Linear({features}, {results}{bias})"
    changed = f"{module_in_code(graph.analysis, module.name)} = {made}"
    place = next(iter(lines_of_constructor(graph, graph.inputs[failed][weight.position])), None)
    if place is not None:
        attribute = module.name.rpartition(".")[2]
        changed = (
            with_argument_changed(place, "Linear", "in_features", features, attribute) or changed
        )
    at = "" if place is None else f"at {short_location(place)}: "
    return place, f"{changed}  # {at}it gets {features} features"


_LINEAR: Final = frozenset({"addmm", "mm"})
_MATRIX: Final = 2


_CUTS: Final = frozenset({"detach", "detach_"})
_UNUSED: Final = re.compile(r"Tensor at index (\d+) appears to not have been used in the graph")


def _line_that_left_input(
    evidence: Evidence, graph: CausalGraph, message: str
) -> SourceLocation | None:
    """Return the only line that read an unused input of a backward without its graph."""
    named = _UNUSED.search(message)
    started = evidence.analysis.log.of(BackwardStarted)[-1:]
    inputs = (started[0].input_tensor_ids or ()) if started else ()
    if named is None or int(named[1]) >= len(inputs):
        return None
    tensors = graph.analysis.tensors
    wanted = tensors[inputs[int(named[1])]]
    readers = [
        index
        for index, given in enumerate(graph.inputs)
        if graph.phases[index] == "forward"
        and index not in graph.node_of_op
        and any(tensors[made].dtype == wanted.dtype for made in graph.outputs[index])
        and any(
            each == wanted.tensor_id or tensors[each].storage_id == wanted.storage_id is not None
            for each in given
        )
    ]
    detached = [index for index in readers if graph.op_names[index] in _CUTS]
    used = detached or [index for index in readers if index in graph.value_slice]
    places = {graph.analysis.location(graph.stacks[index]) for index in used}
    return next(iter(places)) if len(places) == 1 else None


def _without_derivative(graph: CausalGraph, message: str) -> SourceLocation | None:
    """Return the line of an op of which PyTorch says that its derivative is not implemented.

    If it is an op of a backward, it is the line of the op which that is the backward of.
    """
    named = _NO_DERIVATIVE.search(message)
    for index in reversed(range(len(graph.op_names))) if named is not None else ():
        if named is not None and graph.op_names[index] == named[1]:
            node = graph.backward_nodes[index]
            made = index if node is None else graph.op_of_node.get(node, index)
            return graph.analysis.location(graph.stacks[made])
    return None


def _gradient_is_none(evidence: Evidence) -> Draft:
    """Return the draft of an exception of Python about a ``.grad`` that is None."""
    error = evidence.analysis.error
    place = error.location if error is not None else None
    missing = without_gradient(evidence)
    end = end_of_gradient(evidence, missing) if missing else None
    names = [evidence.analysis.leaf_name(each) for each in missing]
    what = f"{plural(len(names), 'parameter')} got no gradient: {join_names(names)}."
    return Draft(
        title="A statement reads a gradient that is None",
        culprit=end or place,
        victim=place,
        explanation=[
            f"This line raised {error.message.strip()!r}:" if error is not None else "",
            place,
            what if names else "No backward had run.",
            "Their way to the loss ends here:" if end is not None else "",
            end,
            "A parameter that takes no part in the loss has no gradient, and neither has one whose "
            "gradient was cleared.",
        ],
        fix="# use the parameter in the loss, or skip it: if p.grad is not None"
        if end is None
        else "# let the gradient pass here, or skip the parameter: if p.grad is not None",
        confidence="likely",
        evidence=(error,),
    )
