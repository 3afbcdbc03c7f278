"""Tensors that outlive their step, and the statements that store them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.causes.statements_that_store_tensors import stored_at, stores_without_graph
from autogradviz.diagnose.evidence.tensors_of_earlier_graph import owner_of_old_graph
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source.statements_rewritten_as_fixes import detached_store
from autogradviz.events import ModuleEntered, NodeFinished, OldGraphHeld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph

_STEPS: Final = 2  # earlier steps from which tensors are alive; one may be a last state


_GRAPH_OF_TENSOR: Final = "Tensor.grad_fn > "
"""The end of the part before the first node, in the path from an owner to a node."""


def find_kept(graph: CausalGraph, *, numbers: bool = False) -> Iterator[Fact]:
    """Yield a fact for each line whose tensors of several earlier steps were alive at the end.

    The end is that of the recording, or of its last step: what a function kept is gone later.

    Args:
        graph: the graph.
        numbers: also if they are single numbers without a graph, such as losses and counters.
    """
    alive = {graph.memory(each): each for each in graph.alive_after_steps}
    for key in graph.registered_memory:
        alive.pop(key, None)
    steps = graph.analysis.steps
    if not alive or len(steps.parts) <= _STEPS:
        return
    modules = dict(graph.analysis.log.fields(ModuleEntered, "call_id", "module_id"))
    by_module: dict[tuple[SourceLocation, int | None], dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index in _creators(graph, alive, numbers=numbers):
        rounds = steps.rounds_after(graph.op_seqs[index])
        place = graph.analysis.location(graph.stacks[index])
        if rounds and place and graph.analysis.user_stack(graph.stacks[index]):
            by_module[place, modules.get(graph.call_ids[index])][rounds].append(index)
    groups: dict[SourceLocation, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (place, _), of_rounds in by_module.items():
        # A module that keeps a tensor of one step has a buffer, as DistributedDataParallel.
        for rounds, found in of_rounds.items() if len(of_rounds) >= _STEPS else ():
            groups[place][rounds] += found
    detached = _detached(graph)
    for place, of_rounds in groups.items():
        fact, is_log = _fact(graph, place, of_rounds, detached, alive)
        if numbers or not is_log:
            yield fact
    yield from _kept_since_before(graph, alive)


def _kept_since_before(graph: CausalGraph, alive: dict[int, int]) -> Iterator[Fact]:
    """Yield a fact for each line whose graphs of steps before those recorded are alive too.

    Their ops are gone. What is known is an owner of the oldest graph, with the node that it has,
    and the tensors that are alive: as many of each shape as several runs of the line leave.
    """
    held = next(iter(graph.analysis.log.of(OldGraphHeld)), None)
    root = held.owner_path.partition(_GRAPH_OF_TENSOR)[2].partition(" > ")[0] if held else ""
    if held is None or not root:
        return
    ran = set(graph.analysis.log.column(NodeFinished, "node_id"))
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    for index in _creators(graph, alive, numbers=False):
        node_id = graph.node_of_op.get(index)
        stack = graph.analysis.user_stack(graph.stacks[index])
        if stack and node_id not in ran and graph.node_names.get(node_id or 0, "") == root:
            groups[stack[0]].append(index)
    unknown = Counter(_kind(graph, alive[key]) for key in alive.keys() - graph.creators.keys())
    for place, ops in groups.items():
        memory = [alive[key] for key in _graph_memory(graph, ops) & alive.keys()]
        made = Counter(_kind(graph, each) for each in memory)
        runs = min((unknown[kind] // count for kind, count in made.items()), default=0) * len(ops)
        if runs >= _STEPS:
            yield _of_many(graph, place, ops, memory, runs, held)


def _kind(graph: CausalGraph, tensor_id: int) -> tuple[tuple[int, ...], str]:
    tensor = graph.analysis.tensors[tensor_id]
    return tensor.shape, tensor.dtype


def _graph_memory(graph: CausalGraph, ops: list[int]) -> set[int]:
    """Return the memory of the results of some ops, and of what their graphs were computed from."""
    found: set[int] = set()
    seen, waiting = set(ops), list(ops)
    while waiting:
        index = waiting.pop()
        found.update(map(graph.memory, graph.outputs[index]))
        for each in (*graph.producers(index), *graph.views(index)):
            if each != NO_OP and each not in seen and graph.numbers[each] is not None:
                seen.add(each)
                waiting.append(each)
    return found


def _of_many(
    graph: CausalGraph,
    place: SourceLocation,
    ops: list[int],
    kept: list[int],
    runs: int,
    held: OldGraphHeld,
) -> Fact:
    """Return the fact of a line whose graphs are kept from before the recorded steps on."""
    tensors = graph.analysis.tensors
    frames = graph.analysis.user_stack(graph.stacks[ops[0]])
    stored, names = stored_at(frames) or (None, frozenset[str]())
    statement = detached_store(stored or place, names) or ""
    nbytes = sum(tensors[each].storage_nbytes for each in kept) // len(ops)
    return Fact(
        slug="tensors-kept",
        mechanism="keep",
        culprit=stored or place,
        effect=f"results of at least {runs} earlier runs of a line are alive with their graphs, "
        f"{format_bytes(nbytes)} each; no backward used them",
        weight=weight("kept with its graph"),
        explanation=[
            "This line computes a value with a graph, of which no backward was called:",
            place,
            "This statement stores the variable:" if stored is not None else "",
            stored,
            f"The oldest one is kept by {held.owner_root}: {held.owner_path}.",
            "Each keeps the tensors that its graph saved, until it is dropped.",
        ],
        confidence="hint",
        others=(place,) if stored is not None and stored != place else (),
        events=tuple(graph.op_seqs[index] for index in ops[:2]),
        fix=_fix(statement, "; or compute it under torch.no_grad()"),
    )


def _creators(graph: CausalGraph, alive: dict[int, int], *, numbers: bool) -> Iterator[int]:
    """Yield the forward ops that created memory which is alive, for ``numbers`` also norms."""
    for index in sorted(graph.creators[key] for key in alive.keys() & graph.creators.keys()):
        in_optimizer = graph.analysis.in_optimizer(graph.stacks[index])
        if graph.phases[index] == "forward" and (numbers or not in_optimizer):
            yield index


def _detached(graph: CausalGraph) -> set[int]:
    """Return the memory of which ``detach`` returned a tensor, which may be the one that is kept.

    Both have one id, so where it is not known what stores the tensor, it may be either.
    """
    return {
        graph.memory(each)
        for name, made in zip(graph.op_names, graph.outputs, strict=True)
        if name == "detach"
        for each in made
    }


def _fact(
    graph: CausalGraph,
    place: SourceLocation,
    steps: dict[int, list[int]],
    detached: set[int],
    alive: dict[int, int],
) -> tuple[Fact, bool]:
    """Return the fact of a line, and whether it only keeps single numbers.

    Args:
        graph: the graph.
        place: the line.
        steps: the ops whose results are alive, by how many rounds followed.
        detached: memory of which a tensor without a graph was made.
        alive: a tensor of each memory that was alive after the steps.
    """
    ops = [index for found in steps.values() for index in found]
    tensors = {graph.memory(t): t for index in ops for t in graph.outputs[index]}
    nbytes = sum(graph.analysis.tensors[t].storage_nbytes for t in tensors.values())
    behind = (_graph_memory(graph, ops) & alive.keys()) - tensors.keys()
    held = sum(graph.analysis.tensors[alive[key]].storage_nbytes for key in behind)
    frames = graph.analysis.user_stack(graph.stacks[ops[0]])
    stored, names = stored_at(frames) or (None, frozenset[str]())
    if stored is not None:
        is_detached = "detach(" in stored.text
    else:
        results = (graph.memory(graph.outputs[index][0]) for index in ops)
        is_detached = stores_without_graph(frames) or detached.issuperset(results)
    with_graph = not is_detached and any(graph.numbers[index] is not None for index in ops)
    is_log = not with_graph and graph.size(tensors.values()) == len(tensors)
    fact = Fact(
        mechanism="keep",
        culprit=stored or place,
        effect=f"{plural(len(tensors), 'tensor')} ({format_bytes(nbytes)}) of "
        f"{plural(len(steps), 'earlier step')} {'is' if len(tensors) == 1 else 'are'} alive at the "
        f"end of the last step{'; they were computed with a graph' if with_graph else ''}"
        f"{f', which holds {format_bytes(held)} more' if with_graph and held else ''}",
        weight=weight("kept with its graph" if with_graph else "kept"),
        explanation=[
            "Tensors that were made here are alive after the steps that made them:",
            place,
            "This statement stores the variable:" if stored is not None else "",
            stored,
            owner_of_old_graph(graph.analysis) if with_graph else "",
        ],
        confidence="hint",
        others=(place,) if stored is not None and stored != place else (),
        events=tuple(graph.op_seqs[index] for index in ops[:2]),
        fix=_fix(detached_store(stored, names) or "", "; and drop what is not needed")
        if with_graph
        else "# drop what is not needed",
    )
    return fact, is_log


def _fix(statement: str, rest: str) -> str:
    """Return the statement that stores a tensor, changed; a comment if it is unknown."""
    return f"{statement or '# store .detach()'}{'  #' if statement else ','} or .item(){rest}"
