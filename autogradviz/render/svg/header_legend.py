"""Title, finding and legend of an SVG."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import short_path
from autogradviz.render.svg import primitives as pen
from autogradviz.render.svg.theme import Theme, mix
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.scene.layout.coordinates import Placement
    from autogradviz.scene.schema import Scene, SceneFinding

LINE: Final = 18.0
MONO_ADVANCE: Final = 0.61
MAX_FIX_LINES: Final = 6
SWATCH: Final = 34.0  # from a legend's glyph to its words


@dataclass(slots=True)
class GroupGeometry:
    """The page while it fills: everything above ``y`` is drawn."""

    width: float
    margin: float
    theme: Theme
    y: float = field(default=0.0)


def draw_heading(sheet: GroupGeometry, scene: Scene) -> str:
    """Return title and subtitle."""
    room = sheet.width - 2 * sheet.margin
    sheet.y = sheet.margin + 6
    parts = []
    for line in wrap(scene.summary.title, room, 19, bold=True):
        parts.append(
            pen.text(sheet.margin, sheet.y, line, fill=sheet.theme.text, size=19, weight=650)
        )
        sheet.y += 24
    for line in wrap(scene.summary.subtitle, room, 11.5):
        parts.append(pen.text(sheet.margin, sheet.y, line, fill=sheet.theme.text2, size=11.5))
        sheet.y += LINE
    sheet.y += 8
    return "\n".join(parts)


def draw_banner(sheet: GroupGeometry, finding: SceneFinding) -> str:
    """Return what was found: title, culprit, victim, fix."""
    theme, left, top = sheet.theme, sheet.margin, sheet.y
    width = sheet.width - 2 * left
    words = []
    sheet.y += 22
    for line in wrap(finding.title, width - 32, 13, bold=True):
        words.append(pen.text(left + 16, sheet.y, line, fill=theme.mutation, size=13, weight=650))
        sheet.y += LINE
    rows = [
        ("Cause", finding.culprit_file, finding.culprit_line, finding.culprit_text),
        ("Fails", finding.victim_file, finding.victim_line, finding.victim_text),
    ]
    for label, filename, lineno, code in rows:
        if filename:
            place = f"{elide(short_path(filename), 44)}:{lineno}"
            words.append(_row(sheet, label, f"{place}  {code.strip()}"))
    fix = [line for line in finding.fix.splitlines() if line.strip()]
    for i, line in enumerate(fix[:MAX_FIX_LINES]):
        words.append(_row(sheet, "" if i else "Fix", line))
    height = sheet.y - top
    tint = f'fill="{mix(theme.mutation, 0.06, theme.page)}"'
    ground = pen.rect(left, top, width, height, radius=6, style=tint)
    ground += pen.rect(left, top, 4, height, radius=2, style=f'fill="{theme.mutation}"')
    sheet.y += 24
    return ground + "\n".join(words)


def _row(sheet: GroupGeometry, label: str, code: str) -> str:
    """Return a label and a line of code, cut to the page."""
    left = sheet.margin + 16
    limit = int((sheet.width - 2 * sheet.margin - 90) / (11 * MONO_ADVANCE))
    shown = code if len(code) <= limit else f"{code[: limit - 1]}…"
    row = pen.text(left, sheet.y, label, fill=sheet.theme.text2, size=11, weight=600)
    row += (
        f'<text x="{pen.num(left + 48)}" y="{pen.num(sheet.y)}" font-size="11"'
        f' font-family="{pen.MONO}" fill="{sheet.theme.text}" xml:space="preserve">'
        f"{pen.escape(shown)}</text>"
    )
    sheet.y += LINE
    return row


def draw_nothing(sheet: GroupGeometry) -> str:
    """Return why there is no graph."""
    words = "No autograd node was seen: call backward() while recording, or keep its result alive."
    sheet.y += 12
    line = pen.text(sheet.margin, sheet.y, words, fill=sheet.theme.text)
    sheet.y += 32
    return line


def wrap(words: str, room: float, size: float, *, bold: bool = False) -> list[str]:
    """Return a text in lines that fit."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def draw_legend(sheet: GroupGeometry, scene: Scene, placement: Placement) -> str:
    """Return the glyphs that the picture uses, each with its word."""
    theme = sheet.theme
    x, right = sheet.margin, sheet.width - sheet.margin
    rule = pen.path(f"M{pen.num(x)} {pen.num(sheet.y)}H{pen.num(right)}", pen.stroke(theme.line))
    sheet.y += 20
    parts = [rule]
    for words, glyph in _entries(scene, placement, theme):
        width = SWATCH + text_width(words, 11) + 18
        if x > sheet.margin and x + width > right:
            x = sheet.margin
            sheet.y += 22
        parts.append(glyph(x, sheet.y))
        parts.append(pen.text(x + SWATCH, sheet.y + 4, words, fill=theme.text2, size=11))
        x += width
    sheet.y += 24
    return "\n".join(parts)


def _entries(
    scene: Scene, placement: Placement, theme: Theme
) -> list[tuple[str, Callable[[float, float], str]]]:
    """Return words and glyphs of what can be seen."""
    shown = {box.ref for box in placement.boxes if box.kind == "node"}
    groups = [scene.groups[box.ref] for box in placement.boxes if box.kind != "node"]
    nodes = [scene.nodes[index] for index in shown]
    chips = {chip.state for chip in scene.chips if chip.node in shown}
    grads = {pennant.grad for pennant in scene.pennants if pennant.node in shown}
    ran = any(node.state != "not_run" for node in nodes)
    entries = [
        (bool(shown) and ran, "forward op, backward node", _box(theme, ran=True)),
        (any(n.state == "not_run" for n in nodes), "backward not run", _box(theme, ran=False)),
        (bool(chips & {"held", "released"}), "saved", _chip(theme, theme.saved)),
        ("recomputed" in chips, "freed, recomputed", _chip(theme, theme.recompute)),
        ("broken" in chips, "changed since saved", _chip(theme, theme.mutation)),
        (bool(grads), "parameter", _pennant(theme)),
        ("none" in grads, "grad is None", lambda x, y: pen.empty_set(x + 12, y, theme.leaf)),
        ("zero" in grads, "grad is zero", lambda x, y: pen.zero(x + 12, y, theme.mutation)),
        (
            "nan" in grads or any(n.not_finite for n in nodes),
            "NaN or infinite",
            lambda x, y: pen.not_finite(x + 12, y, theme.mutation),
        ),
        (any(n.hooks for n in nodes), "hook", _hook(theme)),
        (any(g.checkpointed for g in groups), "checkpoint region", _dashed(theme)),
        (any(n.error for n in nodes), "fails here", _failure(theme)),
        (any(n.writes or n.wrote for n in nodes), "writes in place", _pencil(theme)),
        (
            any(n.cloned for n in nodes),
            "cloned before a write",
            lambda x, y: pen.two_squares(x + 16, y, theme.recompute),
        ),
        (
            any(n.recomputes for n in nodes),
            "recomputed",
            lambda x, y: pen.recompute_glyph(x + 16, y, theme.recompute),
        ),
        (any(e.on_path for e in scene.edges), "path from loss", _arrow(theme.path, 2.6)),
        (bool(placement.lines), "gradient flows up", _arrow(theme.edge, 1.2)),
        (any(n.stub for n in placement.lines), "goes on far away", _stub(theme)),
    ]
    return [(words, glyph) for visible, words, glyph in entries if visible]


def _box(theme: Theme, *, ran: bool) -> Callable[[float, float], str]:
    def glyph(x: float, y: float) -> str:
        line = theme.backward if ran else mix(theme.backward, 0.6, theme.page)
        tint = mix(theme.backward, theme.tint2, theme.page) if ran else theme.page
        return (
            pen.path(
                f"M{pen.num(x + 10)} {pen.num(y - 6)}h14q3 0 3 3v6q0 3 -3 3h-14Z", f'fill="{tint}"'
            )
            + pen.rect(x, y - 6, 27, 12, radius=3, style=pen.stroke(line))
            + pen.path(f"M{pen.num(x + 10)} {pen.num(y - 6)}v12", pen.stroke(line))
        )

    return glyph


def _chip(theme: Theme, color: str) -> Callable[[float, float], str]:
    def glyph(x: float, y: float) -> str:
        style = pen.stroke(mix(color, 0.55, theme.page), fill=mix(color, theme.tint, theme.page))
        bar = pen.rect(x + 4, y - 6, 4, 12, radius=1.5, style=f'fill="{color}"')
        return pen.rect(x + 4, y - 6, 22, 12, radius=3, style=style) + bar

    return glyph


def _pennant(theme: Theme) -> Callable[[float, float], str]:
    def glyph(x: float, y: float) -> str:
        style = pen.stroke(
            mix(theme.leaf, 0.6, theme.page), fill=mix(theme.leaf, theme.tint, theme.page)
        )
        return pen.path(f"M{pen.num(x + 1)} {pen.num(y - 6)}h20l6 6l-6 6h-20Z", style)

    return glyph


def _dashed(theme: Theme) -> Callable[[float, float], str]:
    def glyph(x: float, y: float) -> str:
        style = pen.stroke(theme.recompute, 1.4, dash="4 2.5")
        return pen.rect(x, y - 6, 27, 12, radius=3, style=style)

    return glyph


def _hook(theme: Theme) -> Callable[[float, float], str]:
    return lambda x, y: pen.hook_disc(x + 16, y, theme.text2, theme.page)


def _failure(theme: Theme) -> Callable[[float, float], str]:
    return lambda x, y: pen.fail_disc(x + 16, y, theme.mutation, theme.page)


def _pencil(theme: Theme) -> Callable[[float, float], str]:
    return lambda x, y: pen.pencil(x + 12, y + 5, theme.mutation)


def _arrow(color: str, width: float) -> Callable[[float, float], str]:
    def glyph(x: float, y: float) -> str:
        points = [(x + 16, y + 7), (x + 16, y - 7)]
        line = pen.path(pen.polyline(points), pen.stroke(color, width))
        return line + pen.path(pen.arrow_head(points), f'fill="{color}"')

    return glyph


def _stub(theme: Theme) -> Callable[[float, float], str]:
    def glyph(x: float, y: float) -> str:
        d = f"M{pen.num(x + 16)} {pen.num(y + 6)}v-9"
        dot = f'<circle cx="{pen.num(x + 16)}" cy="{pen.num(y - 3)}" r="2" fill="{theme.edge}"/>'
        return pen.path(d, pen.stroke(theme.edge, 1.2)) + dot

    return glyph
