"""Findings with what the author of the program has accepted: allowed lines, and a baseline.

A baseline lists the findings that a program had when it was written. They are identified by slug,
file, function and text of the line, not by its number, so that an edit elsewhere changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from autogradviz.diagnose.finding import CONFIDENCES
from autogradviz.errors import AutogradvizError
from autogradviz.event_log import write_over_own
from autogradviz.sql_queries.named_queries import query_of
from autogradviz.support.source_lines_and_libraries import path_in_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose import Finding
    from autogradviz.event_log import Log

State: TypeAlias = Literal["new", "allowed", "baseline"]

_KIND: Final = "autogradviz-baseline"
_START: Final = f'{{\n  "kind": "{_KIND}"'
_HOME: Final = re.compile(
    r"(?<![\w.~-])(?:/home/[^/\s]+|/Users/[^/\s]+|/root\b|[A-Za-z]:\\Users\\[^\\\s]+)"
)

Key: TypeAlias = tuple[str, str, str, str]
"""Slug, path, function and text of the line: what identifies a finding in a baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFinding:
    """A finding as a report shows it.

    Attributes:
        finding: the finding.
        state: "new"; "allowed" by a comment on its line; "baseline" if it is in that file.
        heading: the ranks that have it, "" in the trace of one process.
        query: the name of a query of ``autogradviz sql`` that has a row about it, "" for none.
    """

    finding: Finding
    state: State
    heading: str = ""
    query: str = ""

    def as_json(self, root: Path) -> dict[str, Any]:
        """Return the finding with its code, state and fingerprint, for ``json.dumps``.

        Args:
            root: the folder that the path in the fingerprint is relative to.
        """
        finding = self.finding
        more = {
            "fingerprint": fingerprint(key_of(finding, root)),
            "code": finding.code,
            "applicability": finding.applicability,
            "state": self.state,
        }
        return {**asdict(finding), **more, "allowed": finding.allowed, "query": self.query}


def report(
    findings: Iterable[tuple[str, Finding]],
    baseline: Counter[Key],
    root: Path,
    log: Log | None = None,
) -> list[ReportedFinding]:
    """Return findings with their states; each entry of the baseline accepts one finding.

    Args:
        findings: each with its heading.
        baseline: what ``read_baseline`` returned.
        root: the folder that paths in the baseline are relative to.
        log: the recording, to name queries.
    """
    left = Counter(baseline)
    reported = []
    for heading, finding in findings:
        state: State = "allowed" if finding.allowed else "new"
        key = key_of(finding, root)
        if state == "new" and left[key]:
            left[key] -= 1
            state = "baseline"
        query = query_of(finding.events, log) if log is not None else ""
        shown = ReportedFinding(finding=finding, state=state, heading=heading, query=query)
        reported.append(shown)
    return reported


def describe_states(reported: Sequence[ReportedFinding]) -> str:
    """Return "3 findings: 1 new, 1 allowed, 1 in the baseline"; "" if all are new."""
    states = Counter(each.state for each in reported)
    if states["new"] == len(reported):
        return ""
    counts = f"{states['new']} new, {states['allowed']} allowed, {states['baseline']} in the"
    return f"{len(reported)} finding{'s' * (len(reported) > 1)}: {counts} baseline"


def describe_allowed(findings: Iterable[Finding]) -> str:
    """Return "gradient-cut is allowed by the comment on line 9 of a.py"; "" if none is allowed."""
    places = dict.fromkeys(
        (each.slug, each.culprit or each.victim) for each in findings if each.allowed
    )
    return ", ".join(
        f"{slug} is allowed by the comment on line {line.lineno} of {PurePath(line.place).name}"
        for slug, line in places
        if line is not None
    )


def fails(reported: Sequence[ReportedFinding], least: str) -> bool:
    """Return whether a new finding is at least as confident as "certain", "likely" or "hint".

    What explains an exception that the program caught does not count: it may be caught on purpose.
    """
    return any(
        each.state == "new"
        and not each.finding.caught
        and CONFIDENCES.index(each.finding.confidence) <= CONFIDENCES.index(least)
        for each in reported
    )


def key_of(finding: Finding, root: Path) -> Key:
    """Return the key of a finding in a baseline; with its title, if no line is known."""
    line = finding.culprit or finding.victim
    if line is None:
        return finding.slug, "", "", re.sub(r"\d+", "#", finding.title)
    return finding.slug, path_below(line, root)[0], line.function, line.text


def fingerprint(key: Key, occurrence: int = 0) -> str:
    """Return the same text for the same bug in every recording of a program.

    Args:
        key: what ``key_of`` returns. It has no numbers of lines, events or steps.
        occurrence: which of several findings with the same key.
    """
    text = "\0".join((*key, str(occurrence)))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def path_below(line: SourceLocation, root: Path) -> tuple[str, bool]:
    """Return the path of a line's file, and whether it is in the root folder.

    That of a file elsewhere begins after ``site-packages``, or is the name of the file.
    """
    if line.cell is not None:
        return line.place, False
    path = Path(os.path.normpath(line.filename))
    try:
        return (path.relative_to(root) if path.is_absolute() else path).as_posix(), True
    except ValueError:
        short = path_in_packages(line.filename) or PurePath(line.filename).name
        return short.replace("\\", "/"), False


def without_home(text: str, root: Path) -> str:
    """Return text without the path of the root folder and of home folders."""
    short = text.replace(f"{root}/", "").replace(f"{root}\\", "")
    home = str(Path.home())
    return _HOME.sub("~", short.replace(home, "~") if len(home) > 1 else short)


def write_baseline(
    reported: Sequence[ReportedFinding], path: Path, root: Path, *, overwrite: bool
) -> int:
    """Write the findings that no comment allows to a baseline, and return their number."""
    keys = Counter(key_of(each.finding, root) for each in reported if each.state != "allowed")
    names = ("slug", "path", "function", "text")
    entries = [{**dict(zip(names, key, strict=True)), "count": keys[key]} for key in sorted(keys)]
    text = json.dumps({"kind": _KIND, "version": 1, "findings": entries}, indent=2)
    write_over_own(path, f"{text}\n", _START, overwrite=overwrite)
    return keys.total()


def read_baseline(path: Path) -> Counter[Key]:
    """Return the number of times that each finding is in a baseline.

    Raises:
        AutogradvizError: the file is no baseline.
        OSError: it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] == _KIND and content["version"] == 1:
            return Counter(
                {
                    (each["slug"], each["path"], each["function"], each["text"]): int(each["count"])
                    for each in content["findings"]
                }
            )
    except (ValueError, TypeError, KeyError):
        pass
    message = f"{path} is not a baseline; `autogradviz diagnose --write-baseline FILE` writes one"
    raise AutogradvizError(message)
