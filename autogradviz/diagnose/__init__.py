"""Diagnosis: find problems in a recording, and the source lines that caused them."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding import CONFIDENCES, Confidence, CulpritRun, Finding
from autogradviz.diagnose.places_of_facts import (
    add_culprit_runs,
    users_lines_first,
    with_cell_names,
)
from autogradviz.diagnose.rule import Rule, all_rules
from autogradviz.diagnose.source import source_index as source
from autogradviz.errors import AutogradvizWarning
from autogradviz.support.locks_gc_and_stderr import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation

__all__ = [
    "Confidence",
    "CulpritRun",
    "Fact",
    "Finding",
    "diagnose",
    "facts_of_rules",
    "with_runs_and_user_lines",
]


class _Package(ModuleType):
    """This package: ``autogradviz.diagnose``, which may be taken for the method of a trace."""

    def __call__(self, *given: object, **_: object) -> NoReturn:
        """Raise an error that says how the findings of a recording are read.

        Raises:
            TypeError: always.
        """
        advice = "trace.diagnose() returns the findings of a recording"
        if not (given and hasattr(given[0], "diagnose")):
            kind = type(given[0]).__name__ if given else "nothing"
            advice = (
                f"findings are those of a recording, not of {kind}: with autogradviz.record() as "
                "trace: run a step with its backward; then trace.diagnose()"
            )
        message = f"autogradviz.diagnose is a package; {advice}"
        raise TypeError(message)


sys.modules[__name__].__class__ = _Package


def diagnose(
    analysis: Analysis, rules: Sequence[Rule] | None = None, *, evidence: Evidence | None = None
) -> tuple[Finding, ...]:
    """Return the problems that rules find in a recording, the most certain first.

    Args:
        analysis: the recording.
        rules: the rules to run, by default all.
        evidence: indices of the recording, if they are used again.

    Warns:
        AutogradvizWarning: if a rule fails; the findings of the other rules are returned.
    """
    facts = facts_of_rules(evidence or Evidence(analysis), rules)
    return tuple(with_cell_names(fact, analysis.cells).finding() for fact in facts)


@collector_paused()
def facts_of_rules(evidence: Evidence, rules: Sequence[Rule] | None = None) -> list[Fact]:
    """Return the facts that rules find in a recording, the most certain first.

    Args:
        evidence: the recording.
        rules: the rules to run, by default all.

    Warns:
        AutogradvizWarning: if a rule fails; the facts of the other rules are returned.
    """
    source.forget_changed_files()
    evidence.analysis.log.decode()  # the rules read all kinds of events
    rules = all_rules() if rules is None else rules
    found = [(rule, fact) for rule in rules for fact in _run_rule(rule, evidence)]
    if any(not rule.fallback for rule, _ in found):
        found = [(rule, fact) for rule, fact in found if not rule.fallback]
    found.sort(key=lambda pair: CONFIDENCES.index(pair[1].confidence))
    return with_runs_and_user_lines(evidence.analysis, list(_drop_superseded(found)))


def with_runs_and_user_lines(analysis: Analysis, facts: Sequence[Fact]) -> list[Fact]:
    """Return facts with the op calls of their culprits, and the user's lines as culprits."""
    return list(users_lines_first(analysis, add_culprit_runs(analysis, facts)))


def _run_rule(rule: Rule, evidence: Evidence) -> list[Fact]:
    """Return the facts of one rule; if it fails, warn and return none."""
    try:
        return list(rule.facts(evidence))
    except (Exception, SystemExit) as error:  # noqa: BLE001
        message = f"{rule.full_name} failed: {type(error).__name__}: {error}"
        warnings.warn(message, AutogradvizWarning, stacklevel=2)
        return []


def _drop_superseded(found: Iterable[tuple[Rule, Fact]]) -> Iterator[Fact]:
    """Yield the facts that no other one replaces; see ``Rule.supersedes``."""
    found = tuple(found)
    superseded = {(slug, fact.region_id) for rule, fact in found for slug in rule.supersedes}
    named: set[tuple[int | None, SourceLocation | None]] = set()
    for rule, fact in found:
        place = (fact.region_id, fact.culprit)
        repeats = rule.only_new_lines and place in named
        if not repeats and (fact.slug, fact.region_id) not in superseded:
            yield fact
        named.add(place)
