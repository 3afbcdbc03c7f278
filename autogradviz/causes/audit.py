"""The audit: facts of all mechanisms, and findings of the rules, as one list of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.causal_graph import CausalGraph
from autogradviz.causes.changes import find_changes
from autogradviz.causes.cuts import find_cuts
from autogradviz.causes.findings_as_facts import facts_of_findings
from autogradviz.causes.gradient_lifetimes import find_lifetimes
from autogradviz.causes.kept import find_kept
from autogradviz.causes.not_finite import find_not_finite
from autogradviz.causes.owners import find_owners
from autogradviz.causes.refused import find_refusal
from autogradviz.causes.writes import find_writes
from autogradviz.diagnose.evidence.facts import Evidence
from autogradviz.support.pause_gc import collector_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.causes.entry import Fact
    from autogradviz.diagnose import Finding


@collector_paused()
def ranked_facts(analysis: Analysis, findings: Sequence[Finding]) -> list[Fact]:
    """Return the facts of a recording, one for each line and mechanism, largest effect first.

    Args:
        analysis: the recording.
        findings: what the rules found in it; they are facts as well.
    """
    graph, evidence = CausalGraph(analysis), Evidence(analysis)
    searches: tuple[Callable[[], Iterable[Fact]], ...] = (
        lambda: facts_of_findings(findings),
        lambda: find_refusal(graph),
        lambda: find_cuts(graph, evidence),
        lambda: find_lifetimes(graph, evidence),
        lambda: find_owners(graph, evidence),
        lambda: find_changes(graph),
        lambda: find_not_finite(graph, evidence),
        lambda: find_kept(graph),
        lambda: find_writes(graph),
    )
    found = sorted(
        (fact for search in searches for fact in search()), key=lambda fact: -fact.weight
    )
    return list(_merged(found))


def _merged(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Yield the first fact of each line and mechanism."""
    seen: set[object] = set()
    for fact in facts:
        place = (fact.mechanism, fact.location)
        if fact.location is None or place not in seen:
            seen.add(place)
            yield fact
