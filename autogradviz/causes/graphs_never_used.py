"""Graphs of whole forwards that no backward used: evaluations and logging with gradients enabled.

A call of a model is unused if its graph is gone and no value that a backward depends on was
computed from its results. One whose graph is alive when the recording ends may be used later. A
call site is named if several of its calls were unused and none was used, while other calls trained
the same parameters: a single call may have its backward elsewhere.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from textwrap import indent
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import RecorderFailed, RecorderLimited

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph

_LEAST_CALLS: Final = 2  # of one call site
_PARTIAL: Final = frozenset({"nodes", "backward", "transforms", "within"})
"""Limits of a recording that leave out nodes which a backward used."""


def find_unused_graphs(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each function whose calls of a model built graphs that nothing used."""
    log = graph.analysis.log
    limits = _PARTIAL.intersection(log.column(RecorderLimited, "hook_point"))
    if not graph.got_gradient or limits or log.of(RecorderFailed):
        return
    sites: dict[tuple[SourceLocation, ...], list[list[int]]] = defaultdict(list)
    used: set[tuple[SourceLocation, ...]] = set()
    for ops in _outermost_calls(graph):
        frames = _callers(graph, ops[0])
        if not graph.value_slice.isdisjoint(ops):
            used.add(frames)
        elif frames and graph.node_of_op.keys().isdisjoint(ops) and _trains(graph, ops):
            sites[frames].append(ops)
    functions: dict[tuple[object, ...], dict[SourceLocation, list[list[int]]]] = defaultdict(dict)
    for frames, unused in sites.items():
        if len(unused) >= _LEAST_CALLS and frames not in used:
            place = frames[0]
            function = place.filename, place.function, *frames[1:]
            functions[function].setdefault(place, []).extend(unused)
    for places in functions.values():
        yield _fact(graph, places)


def _outermost_calls(graph: CausalGraph) -> Iterator[list[int]]:
    """Yield the ops with a graph of each module call of a forward that no other call contains."""
    outermost: dict[int, int] = {}
    calls: dict[int, list[int]] = defaultdict(list)
    for index, call_id in enumerate(graph.call_ids):
        if call_id is None or graph.numbers[index] is None or graph.failed[index]:
            continue
        if graph.phases[index] != "forward" or graph.region_ids[index] is not None:
            continue
        if call_id not in outermost:
            outer: int = call_id
            while (parent := graph.parent_calls.get(outer)) is not None:
                outer = parent
            outermost[call_id] = outer
        calls[outermost[call_id]].append(index)
    yield from calls.values()


def _callers(graph: CausalGraph, index: int) -> tuple[SourceLocation, ...]:
    """Return the user's lines around the outermost module call of an op, innermost first."""
    callers = graph.analysis.callers_of_modules(graph.stacks[index])
    return graph.analysis.user_stack(graph.stacks[index])[callers[-1] :] if callers else ()


def _trains(graph: CausalGraph, ops: Sequence[int]) -> bool:
    """Return whether a call reads parameters to which some backward of the recording led."""
    trained = {graph.memory(each) for each in graph.got_gradient}
    return any(not trained.isdisjoint(graph.inputs_memory[index]) for index in ops)


def _fact(graph: CausalGraph, places: dict[SourceLocation, list[list[int]]]) -> Fact:
    """Return the fact of one function.

    Args:
        graph: the graph.
        places: the ops of the unused calls, by the line of the call.
    """
    place, *others = places
    calls = places[place]
    every = [index for found in places.values() for ops in found for index in ops]
    kept = _kept_bytes(graph, every) // len(calls)
    size = f", which kept about {format_bytes(kept)} each time" if kept else ""
    return Fact(
        slug="graph-unused",
        mechanism="cost",
        culprit=place,
        effect=f"{plural(len(calls), 'forward')} built a graph that no backward used{size}",
        weight=weight("graph that nothing used"),
        explanation=[
            "This line calls the model with gradients enabled:",
            place,
            "No backward reached its graph, and no loss that was trained depends on its result: "
            "nothing is wrong, but the graph takes time, and keeps the tensors that its nodes "
            f"saved{f', about {format_bytes(kept)},' if kept else ''} until the result is gone.",
            "Other calls of the same model, with a backward, were recorded too. eval() does not "
            "disable gradients.",
        ],
        confidence="hint",
        others=tuple(others),
        events=tuple(graph.op_seqs[index] for index in every[:2]),
        fix=f"with torch.no_grad():\n    {indent(_statement(place), '    ').lstrip()}",
    )


def _statement(place: SourceLocation) -> str:
    """Return the whole statement at a line; of a loop or a condition, what is to go under it."""
    statements = source.simple_statements(place)
    return ast.unparse(statements[0]) if len(statements) == 1 else f"...  # {place.text}"


def _kept_bytes(graph: CausalGraph, ops: Sequence[int]) -> int:
    """Return the bytes of the results of forwards that the nodes of some ops saved.

    Their nodes are gone. Of each op, the nodes of other calls of the same operator show which of
    its inputs and results are saved; memory that the program has anyway does not count.
    """
    positions = _saved_positions(graph)
    made = set(ops)
    kept: dict[int, int] = {}
    for index in ops:
        given, results = graph.inputs[index], graph.outputs[index]
        for is_input, position in positions.get(graph.op_names[index], ()):
            tensors = given if is_input else results
            if position < len(tensors):
                key = graph.memory(tensors[position])
                if graph.creators.get(key) in made:
                    kept[key] = graph.analysis.tensors[tensors[position]].storage_nbytes
    return sum(kept.values())


def _saved_positions(graph: CausalGraph) -> dict[str, set[tuple[bool, int]]]:
    """Return the inputs (True) and results (False) that nodes of each operator saved."""
    found: dict[str, set[tuple[bool, int]]] = defaultdict(set)
    for saved in graph.analysis.saved.values():
        index = graph.op_of_node.get(saved.node_id) if saved.node_id is not None else None
        if index is None:
            continue
        key = graph.memory(saved.tensor.tensor_id)
        for is_input, tensors in ((True, graph.inputs[index]), (False, graph.outputs[index])):
            found[graph.op_names[index]].update(
                (is_input, position)
                for position, each in enumerate(tensors)
                if graph.memory(each) == key
            )
    return found
