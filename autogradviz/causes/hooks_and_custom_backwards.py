"""Hooks that changed gradients, and backwards of custom Functions, which users write by hand."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.evidence.custom_functions import backward_line
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source.operands_changed_as_fixes import multiplied_by_gradient
from autogradviz.events import NO_ID, GradientFactsChecked
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph


_SAMPLES: Final = 3


def find_changes(graph: CausalGraph) -> Iterator[Fact]:
    """Yield facts about hooks that changed gradients, and about hand-written backwards."""
    yield from _hooks(graph)
    yield from _functions(graph)


def _zero(graph: CausalGraph, leaves: set[int]) -> str:
    """Return a clause about parameters whose final gradient is zero, "" for none."""
    norms = graph.final_norms
    zero = {leaf for leaf in leaves if norms.get(leaf) == 0}
    if not zero:
        return ""
    return f"; the final gradient of {plural(len(zero), 'of them')} is zero".replace(
        "of thems", "of them"
    )


def _hooks(graph: CausalGraph) -> Iterator[Fact]:
    groups: dict[SourceLocation, list[tuple[int, int, set[int], int]]] = defaultdict(list)
    leaf_nodes = {tensor_id: node for node, tensor_id in graph.leaves.items()}
    for hook in graph.analysis.hooks:
        if hook.location is None or not hook.changed:
            continue
        nodes = [*hook.node_ids[:_SAMPLES]]
        if hook.tensor_id is not None and hook.tensor_id in leaf_nodes:
            nodes.append(leaf_nodes[hook.tensor_id])
        leaves = {leaf for node in nodes for leaf in graph.reached_leaves(node)}
        groups[hook.location].append((hook.changed, hook.runs, leaves, hook.hook_id))
    for place, hooks in groups.items():
        leaves = {leaf for _, _, found, _ in hooks for leaf in found}
        if not leaves:
            continue
        share = graph.share(leaves)
        changed, runs = sum(h[0] for h in hooks), sum(h[1] for h in hooks)
        zero = _zero(graph, leaves)
        yield Fact(
            mechanism="change",
            culprit=place,
            effect=f"a hook changes the gradient in {changed} of {plural(runs, 'run')}; "
            f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements) "
            f"{'gets' if len(leaves) == 1 else 'get'} gradients through it{zero}",
            weight=weight("hook that gives zeros" if zero else "hook that changes", share),
            explanation=[
                "A hook was registered here, and returned another gradient than it got:",
                place,
            ],
            confidence="hint",
            parameters=tuple(sorted(leaves)),
            share=share,
            events=(),
            fix="# return None from the hook to leave the gradient as it is",
        )


def _functions(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each custom Function whose backward a loss needs."""
    analysis = graph.analysis
    groups: dict[str, list[int]] = defaultdict(list)
    verified = bool(analysis.log.of(GradientFactsChecked))
    for node_id in sorted(graph.gradient_slice & analysis.custom_functions.keys()):
        groups[analysis.custom_functions[node_id]].append(node_id)
    for name, nodes in groups.items():
        place = backward_line(analysis, name)
        if place is None:
            continue
        leaves = {leaf for node in nodes[:_SAMPLES] for leaf in graph.reached_leaves(node)}
        if not leaves:
            continue
        share = graph.share(leaves)
        zero = _zero(graph, leaves)
        ignoring = [node for node in nodes[:_SAMPLES] if _ignores_incoming(graph, node)]
        if ignoring:
            yield _ignored(graph, name, place, ignoring, leaves)
        if ignoring or (verified and not zero):
            continue
        # Of a formula in an installed package, its authors are to check it.
        of_package = is_installed(place.filename)
        formula = "formula of an installed package" if of_package else "formula"
        yield Fact(
            mechanism="change",
            culprit=place,
            effect=f"the hand-written backward of {name} gives "
            f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements) their "
            f"gradients, {plural(len(nodes), 'time')}; its formula is not checked here{zero}",
            # That a formula is not checked is no evidence against it: an entry, not a finding.
            weight=weight("formula that gives zeros" if zero else formula, share),
            explanation=[
                "A custom Function computes gradients here:",
                place,
                "`autogradviz check FILE.py:STEP` compares them with differences of the forward, "
                "where STEP is a function that returns the loss; record(verify=True) with "
                "derivatives of its operators.",
            ],
            confidence="hint",
            parameters=tuple(sorted(leaves)),
            share=share,
            events=(),
            fix="autogradviz.check(step, model)  # prints whether it is right",
            unchecked=True,
        )


def _ignores_incoming(graph: CausalGraph, node_id: int) -> bool:
    """Return whether a run of a node gave gradients that it did not compute from what arrived.

    It is not known where a kernel that is no operator may have read or written the memory.
    """
    ops = graph.ops_of_node.get(node_id, ())
    runs = graph.runs_of_node.get(node_id, ())
    if not runs:
        return False
    seq, arrived = runs[0]
    incoming = {graph.memory(each) for each in arrived if each != NO_ID}
    read = any(
        graph.inputs_memory[index][position] in incoming
        for index in ops
        for position in graph.value_inputs(index)
    )
    if read or not incoming:
        return False
    after = [each for each in graph.next_nodes.get(node_id, ()) if each != NO_ID]
    for each in after:
        later = [run for run in graph.runs_of_node.get(each, ()) if run[0] > seq]
        if graph.predecessors[each] != 1 or not later:
            return False
        if graph.backward_started(seq, later[0][0]):  # a checkpoint by hand: it used what arrived
            return False
        given = {graph.memory(tensor) for tensor in later[0][1] if tensor != NO_ID}
        makers = [graph.op_names[graph.creators[key]] for key in given if key in graph.creators]
        if given & incoming or not makers or any(map(_is_unknown, makers)):
            return False
    return bool(after)


def _is_unknown(name: str) -> bool:
    """Return whether an op makes memory of which it is not known what fills it, or zeros."""
    return "empty" in name or "zero" in name


def _ignored(
    graph: CausalGraph, name: str, place: SourceLocation, nodes: list[int], leaves: set[int]
) -> Fact:
    share = graph.share(leaves)
    return Fact(
        slug="incoming-gradient-ignored",
        mechanism="change",
        culprit=place,
        effect=f"the backward of {name} does not use the gradient that arrives; "
        f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements) "
        f"{'gets its' if len(leaves) == 1 else 'get their'} gradients from it",
        weight=weight("formula without what arrives", share),
        explanation=[
            "A custom Function returns gradients here:",
            place,
            "No operator of its backward read the incoming gradient, so the result is the same "
            "whatever the loss is multiplied with: the scale of a GradScaler, the weight of a "
            "term, the number of accumulated steps.",
        ],
        parameters=tuple(sorted(leaves)),
        share=share,
        events=tuple(graph.runs_of_node[each][0][0] for each in nodes),
        nodes=tuple(nodes),
        fix=multiplied_by_gradient(place) or "# multiply each returned gradient by grad_output",
    )
