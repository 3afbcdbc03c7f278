"""Diagnosis: find problems in a recording, and the source lines that caused them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from autogradviz.diagnose.callers_of_installed_code import users_lines_first
from autogradviz.diagnose.culprit_op_call import add_culprit_runs
from autogradviz.diagnose.evidence.facts import Evidence
from autogradviz.diagnose.finding import CONFIDENCES, Confidence, CulpritRun, Finding
from autogradviz.diagnose.notebook_cell_names import with_cell_names
from autogradviz.diagnose.rule import Rule, all_rules
from autogradviz.diagnose.source import source_index as source
from autogradviz.errors import AutogradvizWarning
from autogradviz.support.pause_gc import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation

__all__ = ["Confidence", "CulpritRun", "Finding", "diagnose", "with_runs_and_cells"]


@collector_paused()
def diagnose(
    analysis: Analysis, rules: Sequence[Rule] | None = None, *, evidence: Evidence | None = None
) -> tuple[Finding, ...]:
    """Return the problems in a recording, the most certain first.

    Args:
        analysis: the recording.
        rules: the rules to run, by default all.
        evidence: indices of the recording, if they are used again.

    Warns:
        AutogradvizWarning: if a rule fails; the findings of the other rules are returned.
    """
    source.forget_changed_files()
    analysis.log.decode()  # the rules read all kinds of events
    evidence = evidence or Evidence(analysis)
    rules = all_rules() if rules is None else rules
    found = [(rule, finding) for rule in rules for finding in _run_rule(rule, evidence)]
    if any(not rule.fallback for rule, _ in found):
        found = [(rule, finding) for rule, finding in found if not rule.fallback]
    found.sort(key=lambda pair: CONFIDENCES.index(pair[1].confidence))
    return with_runs_and_cells(analysis, tuple(_drop_superseded(found)))


def with_runs_and_cells(analysis: Analysis, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with op calls of culprits, lines of the user, and names of notebook cells."""
    found = tuple(users_lines_first(analysis, add_culprit_runs(analysis, tuple(findings))))
    if analysis.cells:
        return tuple(with_cell_names(finding, analysis.cells) for finding in found)
    return found


def _run_rule(rule: Rule, evidence: Evidence) -> list[Finding]:
    """Return the findings of one rule; if it fails, warn and return none."""
    try:
        return list(rule.findings(evidence))
    except (Exception, SystemExit) as error:  # noqa: BLE001
        message = f"{rule.full_name} failed: {type(error).__name__}: {error}"
        warnings.warn(message, AutogradvizWarning, stacklevel=2)
        return []


def _drop_superseded(found: Iterable[tuple[Rule, Finding]]) -> Iterator[Finding]:
    """Yield the findings that no other one replaces; see ``Rule.supersedes``."""
    found = tuple(found)
    superseded = {(slug, finding.region_id) for rule, finding in found for slug in rule.supersedes}
    named: set[tuple[int | None, SourceLocation | None]] = set()
    for rule, finding in found:
        place = (finding.region_id, finding.culprit)
        repeats = rule.only_new_lines and place in named
        if not repeats and (finding.slug, finding.region_id) not in superseded:
            yield finding
        named.add(place)
