"""Run one rule on a hand-written recording."""

from __future__ import annotations

from make_log import make_log

from autogradviz.analysis import Analysis
from autogradviz.diagnose.evidence.evidence import Evidence


def run_rule(rule, *facts):
    """Return the findings of one rule."""
    return list(rule.findings(Evidence(Analysis(make_log(*facts)))))


def lines(finding):
    """Return the culprit and the victim as "file:line"."""
    return str(finding.culprit), str(finding.victim)
