"""The audit: facts of all mechanisms, and findings of the rules, as one list of lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.causes.changes import find_changes
from autogradviz.causes.cuts import find_cuts
from autogradviz.causes.exception_operands import find_refusal
from autogradviz.causes.findings_as_facts import facts_of_findings
from autogradviz.causes.gradient_lifetimes import find_lifetimes
from autogradviz.causes.kept import find_kept
from autogradviz.causes.not_finite import find_not_finite
from autogradviz.causes.parameters_not_optimized_or_registered import find_owners
from autogradviz.causes.precision import find_lost_precision
from autogradviz.causes.transform_cuts import find_transform_cuts
from autogradviz.causes.writes import find_writes
from autogradviz.diagnose.evidence.operand_origins import failed_op
from autogradviz.support.pause_gc import collector_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.causes.entry import Fact
    from autogradviz.diagnose import Finding
    from autogradviz.diagnose.evidence.facts import Evidence


@collector_paused()
def ranked_facts(evidence: Evidence, findings: Sequence[Finding]) -> list[Fact]:
    """Return the facts of a recording, one for each line and mechanism, largest effect first.

    Args:
        evidence: the recording.
        findings: what the rules found in it; they are facts as well.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    is_explained = any(finding.confidence != "hint" for finding in findings)
    of_rules = list(facts_of_findings(findings, graph.parameters.values()))
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
        lambda: find_writes(graph),
    )
    found: dict[object, Fact] = {}
    for fact in sorted((fact for search in searches for fact in search()), key=_by_weight):
        found.setdefault((fact.mechanism, fact.location), fact)
    if analysis.error is not None and failed_op(graph) is None:  # a backward raised, or user code
        for place, fact in found.items():
            if fact.mechanism == "cut" and fact.weight > 1:
                found[place] = replace(fact, weight=fact.weight + 1.2)
    for number, fact in enumerate(_after_slices(of_rules, found)):
        own = found.get((fact.mechanism, fact.location)) if fact.location is not None else None
        found[number] = fact if own is None else _merged(fact, own)
        if own is not None:
            del found[fact.mechanism, fact.location]
    return sorted(found.values(), key=_by_weight)


def _after_slices(of_rules: list[Fact], found: dict[object, Fact]) -> Iterator[Fact]:
    """Yield the facts of rules; their hints about lost gradients come after cuts that explain them.

    A cut was followed from a loss. A rule follows a parameter, and may end at a line whose results
    reach no loss, such as one that logs.
    """
    cuts = [fact for fact in found.values() if fact.mechanism == "cut" and fact.weight > 1]
    for fact in of_rules:
        names = set(fact.parameters)
        better = [each.weight for each in cuts if not names.isdisjoint(each.parameters)]
        is_hint = fact.confidence == "hint" and (fact.mechanism, fact.location) not in found
        if fact.mechanism == "cut" and is_hint and better:
            yield replace(fact, weight=min(fact.weight, max(better) - 0.001))
        else:
            yield fact


def _by_weight(fact: Fact) -> float:
    return -fact.weight


def _merged(of_rule: Fact, own: Fact) -> Fact:
    """Return one fact of two about a line: the effect with numbers, unless a rule is sure."""
    if of_rule.confidence != "hint":
        return replace(
            of_rule,
            parameters=own.parameters or of_rule.parameters,
            share=own.share,
            others=tuple(dict.fromkeys((*of_rule.others, *own.others))),
        )
    return replace(own, finding=of_rule.finding)  # its weight says whether it has an effect
