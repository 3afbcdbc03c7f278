"""Findings from the causal graph: entries of the audit, beside what the rules recognize.

A rule that is sure of its finding comes first, and alone. Otherwise the entries with the largest
effect are findings as well. All of them are hints: the code may mean what it does.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from autogradviz.causes.audit import ranked_facts
from autogradviz.causes.entry import excerpts
from autogradviz.diagnose import Finding, diagnose, with_runs_and_cells
from autogradviz.diagnose.evidence.facts import Evidence
from autogradviz.diagnose.text_formatting import paragraphs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.causes.entry import Fact, Mechanism

_LEAST_WEIGHT: Final = 0.03
"""Of an entry that becomes a finding. Smaller are those whose removal would change nothing."""
_LEAST_SHARE: Final = 0.25  # of the weight of the first hint
_AT_MOST: Final = 3
_AFTER_ERRORS: Final = frozenset({"cut", "refuse", "value"})
"""The mechanisms that explain an exception which no rule explains for certain."""

_UNCHECKED: Final = frozenset({"change", "write"})
"""Mechanisms by which a line decides on values or gradients in a way of its own: a formula of a
custom Function, a write in place. Where nothing else was found, one such line is a hint."""
_LEAST_UNCHECKED: Final = 0.02  # the weight of such a line
_LEAST_ELEMENTS: Final = 0.1  # of all trained parameters, that such a line concerns

SLUGS: Final[dict[Mechanism, str]] = {
    "cut": "gradient-cut",
    "write": "written-in-place",
    "keep": "tensors-kept",
    "change": "gradient-changed",
    "value": "not-finite",
    "refuse": "operation-refused",
}
"""The kinds of the findings. Facts of other mechanisms are findings if they name a kind; the rest
is found by rules, which know when it is meant."""

OWN_SLUGS: Final = (
    "gradient-changed", "gradient-cut", "gradient-zero", "gradients-mixed",
    "precision-lost", "tensor-not-registered", "tensors-kept", "written-in-place",
)  # fmt: skip
"""The kinds that no rule finds."""


def find_problems(analysis: Analysis) -> tuple[tuple[Finding, ...], list[Fact]]:
    """Return the findings in a recording, and all facts of its audit."""
    evidence = Evidence(analysis)
    of_rules = diagnose(analysis, evidence=evidence)
    facts = ranked_facts(evidence, of_rules)
    if any(finding.confidence != "hint" for finding in of_rules):
        return of_rules, facts
    chosen = list(_chosen(analysis, facts, any_rule=bool(of_rules)))
    if not chosen and analysis.error is None:
        chosen = list(islice(filter(_is_unchecked, facts), 2))
    made = [_finding(fact) if fact.finding is None else fact.finding for fact in chosen]
    return with_runs_and_cells(analysis, _one_of_a_kind(made, of_rules)), facts


def _is_unchecked(fact: Fact) -> bool:
    """Return whether a line computes what the recording cannot check, for many parameters."""
    return (
        fact.mechanism in _UNCHECKED
        and fact.weight >= _LEAST_UNCHECKED
        and fact.share >= _LEAST_ELEMENTS
    )


def _one_of_a_kind(made: list[Finding], of_rules: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those that repeat a rule's.

    A finding of a rule stays unless it has no line and one of the same kind has.
    """
    lines = {finding.slug for finding in made if finding not in of_rules and finding.culprit}
    kept = [
        each for each in made if not (each in of_rules and not each.culprit and each.slug in lines)
    ]
    ruled = {each.slug for each in kept if each in of_rules}
    return [each for each in kept if each in of_rules or each.slug not in ruled]


def _chosen(analysis: Analysis, facts: Sequence[Fact], *, any_rule: bool) -> Iterator[Fact]:
    """Yield the facts of hints of rules, and those with the largest effect, in order."""
    named: set[object] = set()
    mechanisms: set[Mechanism] = set()
    may_add = any_rule or analysis.error is None
    least, left = _LEAST_WEIGHT, _AT_MOST
    for fact in facts:
        if fact.finding is None:
            wanted = (
                (fact.slug or fact.mechanism in SLUGS)
                and (analysis.error is None or fact.mechanism in _AFTER_ERRORS)
                and fact.location is not None
                and fact.location not in named
                and not (fact.mechanism == "value" and not fact.slug and "value" in mechanisms)
            )
            if not (wanted and may_add and left and fact.weight >= least):
                continue
            left -= 1
        least = max(least, _LEAST_SHARE * fact.weight)
        named.add(fact.location)
        mechanisms.add(fact.mechanism)
        yield fact


def _finding(fact: Fact) -> Finding:
    """Return the finding that says what a fact says."""
    parts = excerpts([*fact.lines, "The other lines concerned:", *fact.others[:2]])
    return Finding(
        slug=fact.slug or SLUGS[fact.mechanism],
        title=fact.effect,
        culprit=fact.location,
        victim=next((each for each in fact.others if each != fact.location), None),
        explanation=paragraphs(parts),
        fix=fact.fix or "# nothing, if this is meant",
        confidence="hint",
        events=fact.events,
    )
