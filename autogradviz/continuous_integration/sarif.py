"""Findings as SARIF 2.1.0, which code hosts and editors show at their lines."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from autogradviz._version import __version__
from autogradviz.continuous_integration.accepted_findings import (
    fingerprint,
    key_of,
    path_below,
    without_home,
)
from autogradviz.errors import UnknownSlugError
from autogradviz.explanations.codes import codes
from autogradviz.explanations.read_pages import explain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.continuous_integration.accepted_findings import ReportedFinding

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"certain": "error", "likely": "warning", "hint": "note"}
_BASES: Final = {
    "SRCROOT": {"description": {"text": "The folder of the program."}},
    "ELSEWHERE": {"description": {"text": "Installed packages, and files of other folders."}},
}


def to_sarif(
    reported: Sequence[ReportedFinding], root: Path, problem: str | None = None
) -> dict[str, Any]:
    """Return findings as the object of a SARIF file, without absolute paths.

    Args:
        reported: the findings; accepted ones are suppressed results.
        root: the folder of the program, which paths are relative to.
        problem: what is missing in the recording.
    """
    slugs = list(dict.fromkeys(each.finding.slug for each in reported))
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if problem is not None:
        notice = {"level": "warning", "message": {"text": without_home(problem, root)}}
        invocation["toolExecutionNotifications"] = [notice]
    seen: Counter[object] = Counter()
    results = []
    for each in reported:
        key = key_of(each.finding, root)
        results.append(_result(each, slugs.index(each.finding.slug), seen[key], root))
        seen[key] += 1
    driver = {
        "name": "autogradviz",
        "semanticVersion": __version__,
        "rules": [_rule(slug) for slug in slugs],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "originalUriBaseIds": _BASES,
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(slug: str) -> dict[str, Any]:
    """Return the description of a kind of finding; that of a plug-in may have no page."""
    name = "".join(part.capitalize() for part in slug.split("-"))
    rule = {"id": codes().get(slug, slug), "name": name, "properties": {"slug": slug}}
    with suppress(UnknownSlugError):
        page = explain(slug)
        rule["shortDescription"] = {"text": f"{page.title}."}
        rule["fullDescription"] = {"text": page.means}
        rule["help"] = {"text": f"{page.happens}\n\n{page.fix}"}
    return rule


def _result(each: ReportedFinding, rule: int, occurrence: int, root: Path) -> dict[str, Any]:
    finding = each.finding
    parts = (finding.title, each.heading, finding.explanation, f"Fix:\n{finding.fix}")
    text = without_home("\n\n".join(part for part in parts if part), root)
    places = [line for line in (finding.culprit, finding.victim) if line is not None]
    result: dict[str, Any] = {
        "ruleId": codes().get(finding.slug, finding.slug),
        "ruleIndex": rule,
        "level": _LEVELS[finding.confidence],
        "message": {"text": text},
        "locations": [_location(line, root) for line in places[:1]],
        "partialFingerprints": {"lineText/v1": fingerprint(key_of(finding, root), occurrence)},
        "properties": {
            "slug": finding.slug,
            "confidence": finding.confidence,
            "applicability": finding.applicability,
            "state": each.state,
            "fix": without_home(finding.fix, root),
        },
    }
    if places[1:] and finding.victim != finding.culprit:
        text = "The line whose result, gradient or backward is wrong."
        result["relatedLocations"] = [{**_location(places[1], root), "message": {"text": text}}]
    if each.state == "allowed":
        result["suppressions"] = [
            {"kind": "inSource", "justification": without_home(finding.allowed, root)}
        ]
    elif each.state == "baseline":
        result["suppressions"] = [{"kind": "external", "justification": "In the baseline."}]
    return result


def _location(line: SourceLocation, root: Path) -> dict[str, Any]:
    """Return the place of a line; that of a notebook's cell has no file."""
    name = [{"fullyQualifiedName": line.function or "<module>"}]
    if line.cell is not None:
        return {"logicalLocations": name, "message": {"text": str(line)}}
    path, inside = path_below(line, root)
    region: dict[str, Any] = {"startLine": max(line.lineno, 1)}
    if line.text:
        region["snippet"] = {"text": without_home(line.text, root)}
    artifact = {"uri": quote(path), "uriBaseId": "SRCROOT" if inside else "ELSEWHERE"}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": region},
        "logicalLocations": name,
    }
