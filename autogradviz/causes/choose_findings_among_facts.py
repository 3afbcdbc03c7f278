"""The facts of a recording, and those of them that are findings.

A rule that is sure of its finding comes first, and alone. Otherwise the facts of the causal graph
with the largest effect are findings as well. All of them are hints: the code may mean what it does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.causes.audit import ranked_facts
from autogradviz.causes.order_of_facts import (
    LEAST_FINDING,
    LEAST_SHARE_OF_FIRST,
)
from autogradviz.diagnose import Finding, facts_of_rules, with_runs_and_user_lines
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.finding import CONFIDENCES
from autogradviz.diagnose.places_of_facts import with_cell_names
from autogradviz.diagnose.rule import all_rules
from autogradviz.diagnose.source.names_of_program_in_fixes import NamesOfProgram
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.diagnose.fact import Fact
    from autogradviz.diagnose.finding import Mechanism

_AT_MOST: Final = 3
_AFTER_ERRORS: Final = frozenset({"cut", "refuse", "value"})
"""The mechanisms that explain an exception which no rule explains for certain."""

_LOSING: Final = frozenset({"cut", "drop"})
"""The mechanisms by which gradients do not arrive."""

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
    "accumulation-divisor", "accumulation-uneven", "clip-other-parameters", "gradient-all-zero",
    "gradient-changed", "gradient-cut", "gradient-scaled-twice", "gradient-zero", "gradients-mixed",
    "graph-unused", "incoming-gradient-ignored", "loss-broadcast", "loss-of-probabilities",
    "loss-scale-remains", "loss-target-trained", "noise-broadcast",
    "precision-lost",
    "result-constant", "result-discarded", "tensor-not-registered", "tensors-kept",
    "view-mixes-axes", "written-in-place",
)  # fmt: skip
"""The kinds that no rule finds."""


def find_problems(analysis: Analysis) -> tuple[tuple[Finding, ...], list[Fact]]:
    """Return the findings in a recording, and all facts, those with the largest effect first."""
    evidence = Evidence(analysis)
    of_rules = facts_of_rules(evidence)
    facts = ranked_facts(evidence, [*of_rules, *_caught(analysis, of_rules)])
    if any(fact.confidence != "hint" for fact in of_rules):
        chosen = [at for at, fact in enumerate(facts) if fact.of_rule]
    else:
        chosen = list(_chosen(analysis, facts, any_rule=bool(of_rules)))
        for at, fact in zip(
            chosen,
            with_runs_and_user_lines(analysis, [_as_problem(facts[at]) for at in chosen]),
            strict=True,
        ):
            facts[at] = fact
        chosen = _one_of_a_kind(facts, chosen)
    names = NamesOfProgram(analysis)
    facts = [_in_names_of_program(fact, names) for fact in facts]
    if analysis.cells:
        facts = [with_cell_names(fact, analysis.cells) for fact in facts]
    chosen.sort(key=lambda at: CONFIDENCES.index(facts[at].confidence))
    return tuple(facts[at].finding() for at in chosen), facts


def count_lines_to_look_at(facts: Sequence[Fact]) -> int:
    """Return at how many lines gradients are cut or dropped with an effect.

    Of these facts, some are no findings: their mechanisms are often meant.
    """
    return len(
        {
            fact.culprit
            for fact in facts
            if fact.mechanism in _LOSING and fact.weight >= LEAST_FINDING and fact.culprit
        }
    )


def unchecked_backwards(facts: Sequence[Fact]) -> list[SourceLocation]:
    """Return the lines of the backwards of the user that are written by hand and not checked."""
    return [
        fact.culprit
        for fact in facts
        if fact.unchecked and fact.culprit is not None and not is_installed(fact.culprit.filename)
    ]


def _caught(analysis: Analysis, known: Sequence[Fact]) -> Iterator[Fact]:
    """Yield the facts of rules that are sure, about exceptions that the program caught."""
    named = {(fact.slug, fact.culprit) for fact in known}
    for part in analysis.until_caught():
        error = part.error
        assert error is not None
        rules = [rule for rule in all_rules() if not rule.when.holds(analysis)]
        for fact in facts_of_rules(Evidence(part), rules):
            place = fact.slug, fact.culprit
            if fact.confidence == "hint" or place in named:
                continue
            named.add(place)
            kind = error.type_name.rpartition(".")[2]
            yield replace(
                fact,
                caught=True,
                title=f"{fact.title or fact.effect}: raised and caught",
                explanation=(
                    f"The backward here raised {kind}, which the program caught:",
                    error.location,
                    *fact.explanation,
                ),
            )


def _in_names_of_program(fact: Fact, names: NamesOfProgram) -> Fact:
    """Return a fact whose fix has the program's names."""
    fix = names.in_fix(fact.fix, (fact.culprit, fact.victim, *fact.others))
    return fact if fix == fact.fix else replace(fact, fix=fix)


def _one_of_a_kind(facts: Sequence[Fact], chosen: Sequence[int]) -> list[int]:
    """Return the positions of chosen facts without those that repeat a rule's.

    A fact of a rule stays unless it has no line and one of the same kind has.
    """
    own = {facts[at].slug for at in chosen if not facts[at].of_rule and facts[at].culprit}
    kept = [
        at
        for at in chosen
        if not (facts[at].of_rule and not facts[at].culprit and facts[at].slug in own)
    ]
    ruled = {facts[at].slug for at in kept if facts[at].of_rule}
    return [at for at in kept if facts[at].of_rule or facts[at].slug not in ruled]


def _chosen(analysis: Analysis, facts: Sequence[Fact], *, any_rule: bool) -> Iterator[int]:
    """Yield the positions of facts of rules, and of those with the largest effect, in order."""
    named: set[object] = set()
    mechanisms: set[Mechanism] = set()
    may_add = any_rule or analysis.error is None
    ruled = {fact.slug for fact in facts if fact.of_rule and fact.culprit is not None}
    least, left = LEAST_FINDING, _AT_MOST
    for at, fact in enumerate(facts):
        if fact.caught:
            yield at
            continue
        if not fact.of_rule:
            wanted = (
                (fact.slug or fact.mechanism in SLUGS)
                and (analysis.error is None or fact.mechanism in _AFTER_ERRORS)
                and fact.culprit is not None
                and fact.culprit not in named
                and (fact.slug or SLUGS[fact.mechanism]) not in ruled
                and not (fact.mechanism == "value" and not fact.slug and "value" in mechanisms)
            )
            if not (wanted and may_add and left and fact.weight >= least):
                continue
            left -= 1
        least = max(least, LEAST_SHARE_OF_FIRST * fact.weight)
        named.add(fact.culprit)
        mechanisms.add(fact.mechanism)
        yield at


def _as_problem(fact: Fact) -> Fact:
    """Return a fact as a hint of its kind."""
    if fact.of_rule:
        return fact
    places = (fact.victim, *fact.others)
    return replace(
        fact,
        slug=fact.slug or SLUGS[fact.mechanism],
        victim=next((each for each in places if each not in {None, fact.culprit}), None),
        confidence="hint",
    )
