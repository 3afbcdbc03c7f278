"""Statements whose result nothing reads: an operator that was meant to be in place, or assigned."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import plural
from autogradviz.causes.weights import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import describe_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph

_CALLED: Final = {
    "_to_copy": frozenset(
        {"to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type", "type_as"}
    ),
    "clone": frozenset({"clone", "contiguous"}),
    "clamp": frozenset({"clamp", "clip"}),
    "view": frozenset({"view", "reshape"}),
    "_unsafe_view": frozenset({"reshape"}),
    "div": frozenset({"div", "divide", "true_divide"}),
    "mul": frozenset({"mul", "multiply"}),
    "sub": frozenset({"sub", "subtract"}),
}
"""The names of the functions that call an operator, if they are others than its own."""


def find_unused_results(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each statement that calls an operator and drops the tensor it returns."""
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    for index in _unread(graph):
        place = graph.analysis.location(graph.stacks[index])
        if place is not None and graph.is_users(index):
            groups[place].append(index)
    for place, ops in groups.items():
        call = _dropped_call(place)
        if call is None or place.filename in graph.analysis.cells:  # a notebook shows it
            continue
        called = source.last_name(call.func)
        found = [at for at in ops if called in _names_of_calls(graph.op_names[at])]
        if found:
            yield _fact(graph, place, found, call)


def _unread(graph: CausalGraph) -> list[int]:
    """Return the ops that write nothing and whose results no other op reads, writes or views."""
    used: dict[int, int] = {}  # how many ops have each tensor as input or output
    for given, made in zip(graph.inputs, graph.outputs, strict=True):
        for tensor_id in {*given, *made}:
            used[tensor_id] = used.get(tensor_id, 0) + 1
    return [
        index
        for index, made in enumerate(graph.outputs)
        if made
        and graph.inputs[index]
        and not graph.written[index]
        and not graph.failed[index]
        and graph.phases[index] == "forward"
        and all(used[each] == 1 for each in made)
    ]


def _names_of_calls(op: str) -> frozenset[str]:
    return _CALLED.get(op, frozenset({op}))


def _dropped_call(place: SourceLocation) -> ast.Call | None:
    """Return the call that is the whole statement of a line, None if its value goes elsewhere."""
    statements = source.simple_statements(place)
    if len(statements) != 1 or not isinstance(statements[0], ast.Expr):
        return None
    call = statements[0].value
    return call if isinstance(call, ast.Call) else None


def _fact(graph: CausalGraph, place: SourceLocation, ops: list[int], call: ast.Call) -> Fact:
    result = graph.analysis.tensors[graph.outputs[ops[0]][0]]
    behind = graph.parameters_behind(ops[0])
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = owner is not None and ast.unparse(owner) != "torch"
    target = ast.unparse(owner if is_method and owner is not None else call.args[0])
    return Fact(
        slug="result-discarded",
        mechanism="drop",
        culprit=place,
        effect=f"the result of {source.last_name(call.func)}() ({describe_tensor(result)}) is "
        f"dropped, {plural(len(ops), 'time')}",
        weight=weight("dropped result"),
        explanation=[
            "This statement calls an operator that returns a new tensor:",
            place,
            "Nothing reads the new tensor, and the old one has not changed.",
        ],
        parameters=tuple(sorted(behind)),
        share=graph.share(behind),
        events=tuple(graph.op_seqs[each] for each in ops[:2]),
        fix=f"{target} = {ast.unparse(call)}",
    )
