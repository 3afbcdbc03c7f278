"""The audit: facts of all mechanisms, those of the rules among them, as one list of lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.causes.changes import find_changes
from autogradviz.causes.cuts import find_cuts
from autogradviz.causes.exception_operands import find_refusal
from autogradviz.causes.gradient_lifetimes import find_lifetimes
from autogradviz.causes.kept import find_kept
from autogradviz.causes.not_finite import find_not_finite
from autogradviz.causes.operand_shapes import find_wrong_shapes
from autogradviz.causes.parameters_not_optimized_or_registered import find_owners
from autogradviz.causes.precision import find_lost_precision
from autogradviz.causes.transform_cuts import find_transform_cuts
from autogradviz.causes.unused_results import find_unused_results
from autogradviz.causes.weights import CUT_BEFORE_ERROR, LOST, weight_of_rule
from autogradviz.causes.writes import find_writes
from autogradviz.causes.zero_gradients import find_zero_gradients
from autogradviz.diagnose.evidence.operand_origins import failed_op
from autogradviz.support.pause_gc import collector_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.fact import Fact


@collector_paused()
def ranked_facts(evidence: Evidence, of_rules: Sequence[Fact]) -> list[Fact]:
    """Return the facts of a recording, one for each line and mechanism, largest effect first.

    Args:
        evidence: the recording.
        of_rules: what the rules found in it, in their order.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    is_explained = any(fact.confidence != "hint" for fact in of_rules)
    searches: tuple[Callable[[], Iterable[Fact]], ...] = (
        lambda: find_refusal(graph, evidence, is_explained=is_explained),
        lambda: find_cuts(graph, evidence),
        lambda: find_transform_cuts(graph, evidence),
        lambda: find_lifetimes(graph, evidence),
        lambda: find_owners(graph, evidence),
        lambda: find_changes(graph),
        lambda: find_not_finite(graph, evidence),
        lambda: find_lost_precision(graph),
        lambda: find_kept(graph),
        lambda: find_writes(graph, evidence),
        lambda: find_zero_gradients(graph, evidence),
        lambda: find_unused_results(graph),
        lambda: find_wrong_shapes(graph),
    )
    found: dict[object, Fact] = {}
    for fact in sorted((fact for search in searches for fact in search()), key=_by_weight):
        found.setdefault((fact.mechanism, fact.culprit), fact)
    backward_raised = analysis.error is not None and failed_op(graph) is None  # or code of the user
    if backward_raised and not is_explained:
        for place, fact in found.items():
            if fact.mechanism == "cut" and fact.weight > LOST:
                found[place] = replace(fact, weight=fact.weight + CUT_BEFORE_ERROR)
    weighed = [_with_effect(graph, fact, place) for place, fact in enumerate(of_rules)]
    for number, fact in enumerate(weighed):
        own = None
        if fact.culprit is not None:
            own = found.pop((fact.mechanism, fact.culprit), None)
        found[number] = fact if own is None else _merged(fact, own)
    return sorted(found.values(), key=_by_weight)


def _with_effect(graph: CausalGraph, fact: Fact, place: int) -> Fact:
    """Return a fact of a rule with its weight, the parameters concerned and their share."""
    leaves = fact.parameters or tuple(sorted(_leaves(graph, fact)))
    trained = [leaf for leaf in leaves if leaf in graph.parameters]
    return replace(
        fact,
        weight=weight_of_rule(fact.confidence, place),
        parameters=leaves,
        others=(fact.victim,) if fact.victim not in {None, fact.culprit} else (),
        share=graph.share(trained),
    )


def _leaves(graph: CausalGraph, fact: Fact) -> set[int]:
    """Return the parameters whose gradients flow through a fact's nodes, or that its region has."""
    if fact.nodes or fact.region_id is None:
        return {leaf for node in fact.nodes for leaf in graph.reached_leaves(node)}
    read = {
        graph.memory(tensor.tensor_id)
        for region in graph.analysis.regions
        if region.region_id == fact.region_id
        for ops in (region.ops, *(again.ops for again in region.recomputations))
        for op in ops
        for tensor in op.inputs
    }
    return {leaf for memory, leaf in graph.parameter_memory.items() if memory in read}


def _by_weight(fact: Fact) -> float:
    return -fact.weight


def _merged(fact: Fact, own: Fact) -> Fact:
    """Return one fact of a rule's and the graph's about a line: the effect with numbers.

    Unless the rule is sure, the weight is that of the graph: it says whether there is an effect.
    """
    merged = replace(
        fact,
        parameters=own.parameters or fact.parameters,
        share=own.share,
        others=tuple(dict.fromkeys((*fact.others, *own.others))),
    )
    if fact.confidence != "hint":
        return merged
    if fact.mechanism == "keep":  # both say that it is kept
        return replace(merged, effect=own.effect, title=fact.effect)
    return replace(merged, effect=own.effect, title=fact.effect, weight=own.weight)
