"""Header of an SVG: title, subtitle, and a banner with the first finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import short_path
from autogradviz.render.svg import primitives as svg
from autogradviz.render.svg.theme import Theme, mix
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from autogradviz.scene.schema import Scene, SceneFinding

LINE: Final = 18.0
MONO_ADVANCE: Final = 0.61
MAX_FIX_LINES: Final = 6


@dataclass(slots=True)
class Page:
    """A page that is filled from top to bottom. ``y`` is the first free position."""

    width: float
    margin: float
    theme: Theme
    y: float = 0.0


def draw_title(page: Page, scene: Scene) -> str:
    """Return title and subtitle."""
    width = page.width - 2 * page.margin
    page.y = page.margin + 6
    parts = []
    for line in wrap(scene.summary.title, width, 19, bold=True):
        parts.append(svg.text(page.margin, page.y, line, fill=page.theme.text, size=19, weight=650))
        page.y += 24
    for line in wrap(scene.summary.subtitle, width, 11.5):
        parts.append(svg.text(page.margin, page.y, line, fill=page.theme.text2, size=11.5))
        page.y += LINE
    page.y += 8
    return "\n".join(parts)


def draw_banner(page: Page, finding: SceneFinding) -> str:
    """Return a finding's title, culprit, victim and fix."""
    theme, left, top = page.theme, page.margin, page.y
    width = page.width - 2 * left
    lines = []
    page.y += 22
    for line in wrap(finding.title, width - 32, 13, bold=True):
        lines.append(svg.text(left + 16, page.y, line, fill=theme.mutation, size=13, weight=650))
        page.y += LINE
    for label, filename, lineno, code in (
        ("Cause", finding.culprit_file, finding.culprit_line, finding.culprit_text),
        ("Fails", finding.victim_file, finding.victim_line, finding.victim_text),
    ):
        if filename:
            location = f"{elide(short_path(filename), 44)}:{lineno}"
            lines.append(_code_row(page, label, f"{location}  {code.strip()}"))
    fix = [line for line in finding.fix.splitlines() if line.strip()]
    for i, line in enumerate(fix[:MAX_FIX_LINES]):
        lines.append(_code_row(page, "" if i else "Fix", line))
    height = page.y - top
    tint = f'fill="{mix(theme.mutation, 0.06, theme.page)}"'
    background = svg.rect(left, top, width, height, radius=6, style=tint)
    background += svg.rect(left, top, 4, height, radius=2, style=f'fill="{theme.mutation}"')
    page.y += 24
    return background + "\n".join(lines)


def _code_row(page: Page, label: str, code: str) -> str:
    """Return a label and a line of code, truncated to the width of the page."""
    left = page.margin + 16
    limit = int((page.width - 2 * page.margin - 90) / (11 * MONO_ADVANCE))
    truncated = code if len(code) <= limit else f"{code[: limit - 1]}…"
    row = svg.text(left, page.y, label, fill=page.theme.text2, size=11, weight=600)
    row += (
        f'<text x="{svg.num(left + 48)}" y="{svg.num(page.y)}" font-size="11"'
        f' font-family="{svg.MONO}" fill="{page.theme.text}" xml:space="preserve">'
        f"{svg.escape(truncated)}</text>"
    )
    page.y += LINE
    return row


def draw_empty_message(page: Page) -> str:
    """Return a message for a recording without nodes."""
    message = (
        "No autograd node was seen: call backward() while recording, or keep its result alive."
    )
    page.y += 12
    line = svg.text(page.margin, page.y, message, fill=page.theme.text)
    page.y += 32
    return line


def wrap(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return a text in lines of at most a width. A longer word gets its own line."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
