"""Findings from the causal graph: entries of the audit, beside what the rules recognize.

A rule that is sure of its finding comes first, and alone. Otherwise the entries with the largest
effect are findings as well. All of them are hints: the code may mean what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.causes.audit import ranked_facts
from autogradviz.diagnose import Finding, diagnose, with_runs_and_cells
from autogradviz.diagnose.text_formatting import paragraphs, quote_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.causes.entry import Fact, Mechanism

_LEAST_WEIGHT: Final = 0.03
"""Of an entry that becomes a finding. Smaller are those whose removal would change nothing."""
_LEAST_SHARE: Final = 0.25  # of the weight of the first hint
_AT_MOST: Final = 3
_AFTER_ERRORS: Final = frozenset({"refuse", "value"})
"""The mechanisms that explain an exception which no rule explains for certain."""
_HINT_WEIGHT: Final = 1.2  # of a hint of a rule

SLUGS: Final[dict[Mechanism, str]] = {
    "cut": "gradient-cut",
    "write": "written-in-place",
    "drop": "gradients-discarded",
    "mix": "gradients-mixed",
    "keep": "tensors-kept",
    "free": "graph-freed",
    "change": "gradient-changed",
    "value": "not-finite",
    "own": "parameter-not-updated",
    "order": "step-without-gradients",
    "refuse": "operation-refused",
}
"""The kinds of the findings; nothing but a rule finds what diverges."""


def find_problems(analysis: Analysis) -> tuple[tuple[Finding, ...], list[Fact]]:
    """Return the findings in a recording, and all facts of its audit."""
    of_rules = diagnose(analysis)
    facts = ranked_facts(analysis, of_rules)
    sure = [finding for finding in of_rules if finding.confidence != "hint"]
    if sure:
        return of_rules, facts
    hints = [(_HINT_WEIGHT - 0.01 * place, each) for place, each in enumerate(of_rules)]
    return tuple(_ordered(analysis, hints, list(_chosen(analysis, facts, of_rules)))), facts


def _chosen(
    analysis: Analysis, facts: Sequence[Fact], of_rules: Sequence[Finding]
) -> Iterator[Fact]:
    """Yield the facts that may become findings."""
    for fact in facts:
        wanted = fact.mechanism in SLUGS and fact.location is not None
        if analysis.error is not None:
            wanted &= bool(of_rules) and fact.mechanism in _AFTER_ERRORS
        if wanted and not fact.of_finding and fact.weight >= _LEAST_WEIGHT:
            yield fact


def _ordered(
    analysis: Analysis, hints: list[tuple[float, Finding]], facts: list[Fact]
) -> Iterator[Finding]:
    """Yield the hints of rules and the first facts, those with the largest effect first."""
    weights = {fact.location: fact.weight for fact in reversed(facts)}
    named = {finding.culprit for _, finding in hints}
    hints = [(max(weight, weights.get(each.culprit, 0.0)), each) for weight, each in hints]
    most = max([weight for weight, _ in hints] + [fact.weight for fact in facts], default=0.0)
    fresh = [f for f in facts if f.location not in named and f.weight >= _LEAST_SHARE * most]
    made = with_runs_and_cells(analysis, [_finding(fact) for fact in fresh[:_AT_MOST]])
    both = [*zip([fact.weight for fact in fresh], made, strict=False), *hints]
    yield from (finding for _, finding in sorted(both, key=lambda pair: -pair[0]))


def _finding(fact: Fact) -> Finding:
    """Return the finding that says what a fact says."""
    parts = [part if isinstance(part, str) else quote_source(part) for part in fact.lines]
    if fact.others:
        parts += ["The other lines concerned:", *(quote_source(each) for each in fact.others[:2])]
    return Finding(
        slug=fact.slug or SLUGS[fact.mechanism],
        title=fact.effect,
        culprit=fact.location,
        victim=next((each for each in fact.others if each != fact.location), None),
        explanation=paragraphs(list(dict.fromkeys(part for part in parts if part))),
        fix=fact.fix or "# nothing, if this is meant",
        confidence="hint",
        events=fact.events,
    )
