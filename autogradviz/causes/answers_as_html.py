"""Answers as HTML for notebooks: a card for each line, with the source around it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding_text import place_text
from autogradviz.support.source_lines_and_libraries import source_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.finding import Finding

_CARD: Final = (
    "border:1px solid rgba(128,128,128,.4);border-left:4px solid {color};border-radius:6px;"
    "padding:8px 12px;margin:8px 0;max-width:60em"
)
_CODE: Final = "margin:4px 0;padding:4px 8px;background:rgba(128,128,128,.12);white-space:pre-wrap"
_COLORS: Final = {"certain": "#d1242f", "likely": "#bc4c00", "hint": "#9a6700"}
_DIM: Final = '<span style="opacity:.65">{}</span>'


def finding_card(finding: Finding) -> str:
    """Return a finding: its title, the lines concerned with those around them, and the fix."""
    lines = [("culprit", finding.culprit)]
    if finding.victim != finding.culprit:
        lines.append(("victim", finding.victim))
    return card(
        finding.title,
        f"{finding.slug}, {finding.confidence}",
        [(label, place) for label, place in lines if place is not None],
        explanation=finding.explanation,
        fix=finding.fix,
        color=_COLORS[finding.confidence],
    )


def card(
    title: str,
    kind: str,
    lines: Iterable[tuple[str, SourceLocation | None]],
    *,
    explanation: str = "",
    fix: str = "",
    color: str = "#57606a",
) -> str:
    """Return one answer.

    Args:
        title: one sentence.
        kind: a few words after it.
        lines: labels, each with its source line if it has one.
        explanation: text that is folded at first.
        fix: code.
        color: of the left border.
    """
    parts = [f"<b>{html.escape(title)}</b> {_DIM.format(html.escape(f'[{kind}]'))}"]
    for label, place in lines:
        where = label if place is None else f"{label} {place_text(place)}"
        parts.append(f"<div>{_DIM.format(html.escape(where))}</div>")
        if place is not None:
            parts.append(_code(source_lines(place)))
    if fix:
        parts += [f"<div>{_DIM.format('fix')}</div>", _code([(fix, False)])]
    if explanation:
        text = _code([(explanation, False)])
        parts.append(f"<details><summary>explanation</summary>{text}</details>")
    return f'<div style="{_CARD.format(color=color)}">{"".join(parts)}</div>'


def source_lines(place: SourceLocation) -> list[tuple[str, bool]]:
    """Return the recorded line, marked, between the lines around it.

    If the file has changed since, or is not there, only the recorded line is known.
    """
    first = max(place.lineno - 1, 1)
    around = [source_line(place.filename, n).rstrip() for n in range(first, place.lineno + 2)]
    own = place.lineno - first
    if not place.text or around[own].strip() != place.text:
        return [(place.text or "(source not available)", True)]
    shown = [(line, number == own) for number, line in enumerate(around)]
    indent = min((len(line) - len(line.lstrip()) for line, _ in shown if line), default=0)
    return [(line[indent:], is_own) for line, is_own in shown]


def _code(lines: Sequence[tuple[str, bool]]) -> str:
    texts = (
        f"<b>{html.escape(line)}</b>" if is_own else html.escape(line) for line, is_own in lines
    )
    return f'<pre style="{_CODE}">' + "\n".join(texts) + "</pre>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts."""
    top = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"
