"""The SVG of the fold: the forward above, a ribbon for each saved storage, backward below.

The viewer's ``views/saved_memory_fold/`` draws the same ribbons on a canvas.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import format_bytes, format_duration
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.animated_memory_fold import Film
from autogradviz.render.svg.fit_column_of_paper import PAPER_MARGIN, room_of
from autogradviz.render.svg.themes_and_primitives import Theme, ThemeName, find_theme, mix
from autogradviz.scene.label_text_and_width import text_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.scene.schema import Scene, SceneFold, SceneFoldBar, SceneRibbon

WIDTH: Final = 1080.0
MARGIN: Final = 28.0
HEIGHT: Final = 360.0
"""Of the ribbons."""

BAR: Final = 20.0
SCALE: Final = 100_000
WAIST: Final = (0.3, 0.7)
TURN: Final = 0.5
ENDS: Final = {"kept": 1.0, "waiting": 0.84, "unread": 0.78, "broken": 1.0, "read": 1.0}
FONT_SIZE: Final = 10.5
PER_ROW: Final = 3
"""Kinds in a row of the legend."""


def render_fold_svg(
    scene: Scene,
    fold: SceneFold,
    *,
    theme: ThemeName = "light",
    animate: bool = False,
    width_mm: float | None = None,
) -> str:
    """Return a fold as SVG.

    Args:
        scene: the view model of the recording.
        fold: one of its folds.
        theme: "light" or "dark".
        animate: play the step.
        width_mm: width of a column of a paper; without the title.

    Raises:
        ValueError: if the width is not positive.
    """
    colors = find_theme(theme)
    ribbons = [ribbon for ribbon in scene.ribbons if ribbon.fold == fold.index]
    hues = {kind.name: getattr(kind, theme) for kind in scene.saved_kinds}
    film = Film(scene, fold, ribbons) if animate else None
    area = _Area(WIDTH, MARGIN, MARGIN + 62 + BAR, HEIGHT)
    parts = []
    if width_mm is None:
        title = " · ".join(filter(None, (scene.summary.title, fold.label)))
        sentence = _wrapped(fold.sentence, WIDTH - 2 * MARGIN - (160 if animate else 0))
        parts.append(svg.text(MARGIN, MARGIN + 6, title, fill=colors.text, size=16, weight=650))
        parts.append(svg.text(MARGIN, MARGIN + 26, sentence, fill=colors.text2, size=11.5))
    else:
        room = room_of(width_mm)
        area = _Area(room, PAPER_MARGIN, PAPER_MARGIN + 16 + BAR, min(HEIGHT, room / 2))
    width, margin, top, bottom = area.width, area.margin, area.top, area.top + area.height
    right, foot = width - margin, bottom + BAR + 16
    drawing = _Drawing(colors, hues, area, film)
    stopped = scene.summary.error_type != ""
    forward = "forward, no backward" if fold.turn_ns < 0 else "forward"
    head = f"{forward} {format_duration(fold.forward_ns)} →"
    parts.append(svg.text(margin, top - BAR - 6, head, fill=colors.text2, size=11, weight=600))
    parts += [drawing.ribbon(ribbon) for ribbon in ribbons]
    bars = [bar for bar in scene.fold_bars if bar.fold == fold.index]
    parts += [part for bar in bars for part in drawing.bar(bar)]
    parts += [] if stopped else [drawing.open_end(each) for each in ribbons if each.state == "kept"]
    parts += drawing.waists(ribbons)
    if film is not None:
        parts.insert(0, film.style((margin, right), top - BAR - 1, bottom + BAR + 12))
        parts += [film.mark(colors), film.counter(right, area.margin + 6, colors)]
    if fold.turn_ns >= 0:
        text = f"← backward {format_duration(fold.backward_ns)}"
        fill = colors.backward
        parts.append(svg.text(right, foot, text, fill=fill, size=11, weight=600, anchor="end"))
    legend = [kind for kind in scene.saved_kinds if kind.name in {r.kind for r in ribbons}]
    entries = [
        f"{kind.title} {format_bytes(sum(r.nbytes for r in ribbons if r.kind == kind.name))}"
        for kind in legend
    ]
    longest = max((text_width(entry, 11) for entry in entries), default=0.0) + 26
    per_row = max(1, min(PER_ROW, int((right - margin) / longest)))
    for at, (kind, entry) in enumerate(zip(legend, entries, strict=True)):
        column, row = at % per_row, at // per_row
        x, y = margin + column * (right - margin) / per_row, foot + 22 + row * 18
        parts.append(svg.rect(x, y - 9, 10, 10, radius=2, style=f'fill="{hues[kind.name]}"'))
        parts.append(svg.text(x + 16, y, entry, fill=colors.text, size=11))
    height = foot + 22 + -(-len(legend) // per_row) * 18 + 6
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {svg.size(width, height, width_mm)} '
        f'viewBox="0 0 {svg.num(width)} {svg.num(height)}" '
        f'font-family="{svg.FONT}">\n<rect width="100%" height="100%" fill="{colors.page}"/>\n'
        f"{body}\n</svg>\n"
    )


def _wrapped(text: str, width: float) -> str:
    """Return a text of at most one line; what does not fit is left out at a sentence."""
    sentences = text.split(". ")
    while len(sentences) > 1 and text_width(". ".join(sentences), 11.5) > width:
        sentences.pop()
    return ". ".join(sentences).rstrip(".") + "."


class _Area(NamedTuple):
    """The extents of a picture and of its ribbons."""

    width: float
    margin: float
    top: float
    height: float


class _Drawing:
    """Draws the ribbons of one fold."""

    def __init__(self, colors: Theme, hues: dict[str, str], area: _Area, film: Film | None) -> None:
        self._film = film
        self._colors = colors
        self._hues = hues
        self._area = area
        self._clips = 0

    def _x(self, position: float) -> float:
        width, margin, *_ = self._area
        return margin + (width - 2 * margin) * position / SCALE

    def _y(self, share: float) -> float:
        return self._area.top + self._area.height * share

    def _outline(self, ribbon: SceneRibbon) -> str:
        """Return the path of a ribbon: an edge above, the waist, an edge below."""
        num, x = svg.num, self._x
        (t0, t1), (w0, w1) = (map(x, ribbon.top), map(x, ribbon.waist))
        first, last = (self._y(share) for share in WAIST)
        top, bottom = self._y(0), self._y(1)
        upper, lower = num((top + first) / 2), num((last + bottom) / 2)
        parts = [
            f"M{num(t0)} {num(top)}H{num(t1)}",
            f"C{num(t1)} {upper} {num(w1)} {upper} {num(w1)} {num(first)}",
        ]
        if ribbon.bottom:
            b0, b1 = map(x, ribbon.bottom)
            parts += [
                f"V{num(last)}C{num(w1)} {lower} {num(b1)} {lower} {num(b1)} {num(bottom)}",
                f"H{num(b0)}C{num(b0)} {lower} {num(w0)} {lower} {num(w0)} {num(last)}",
            ]
        else:
            parts.append(f"V{num(self._y(ENDS[ribbon.state]))}H{num(w0)}")
        parts.append(f"V{num(first)}C{num(w0)} {upper} {num(t0)} {upper} {num(t0)} {num(top)}Z")
        return "".join(parts)

    def ribbon(self, ribbon: SceneRibbon) -> str:
        """Return a ribbon with its tooltip."""
        colors, page, hue = self._colors, self._colors.page, self._hues[ribbon.kind]
        outline = self._outline(ribbon)
        count = f"{ribbon.count:,} " if ribbon.count > 1 else ""
        name = PurePath(ribbon.filename).name
        place = f" ({name}:{ribbon.lineno})" if ribbon.lineno else ""
        hint = f"{count}{ribbon.label} · {ribbon.module or ribbon.block or 'model'}{place}: "
        hint += format_bytes(ribbon.nbytes)
        thin = ribbon.waist[1] - ribbon.waist[0] < SCALE / 300
        edge = "" if thin else f' stroke="{page}" stroke-width="0.8"'
        fill = f'fill="{mix(hue, 0.88, page)}"{edge}'
        if ribbon.elsewhere:
            look = svg.stroke(mix(hue, 0.7, page), 1, dash="4 3", fill=mix(hue, 0.06, page))
            drawn = svg.path(outline, look)
        elif ribbon.recomputed:
            pale = mix(colors.recompute, 0.09, page)
            gap = svg.stroke(pale, 0.8, fill=pale)
            drawn = self._part(svg.path(outline, gap), 0, TURN)
            drawn += self._part(svg.path(outline, fill), TURN, 1)
            left, right = map(self._x, ribbon.waist)
            style = f'fill="{colors.recompute}"'
            drawn += svg.rect(left, self._y(TURN) - 1, right - left, 2, radius=0, style=style)
        else:
            drawn = svg.path(outline, fill)
        if ribbon.state == "broken":
            red = f'fill="{mix(colors.mutation, 0.75, page)}"'
            drawn += self._part(svg.path(outline, red), max(0, ribbon.written) / SCALE, 1)
        name = "" if self._film is None or ribbon.elsewhere else self._film.name_of(ribbon)
        start = f'<g class="{name}">' if name else "<g>"
        return f"{start}<title>{svg.escape(hint)}</title>{drawn}</g>"

    def _part(self, drawn: str, start: float, end: float) -> str:
        """Return the part of a drawing between two shares of the height."""
        self._clips += 1
        name = f"fold-{self._clips}"
        y, height = self._y(start), self._area.height * (end - start) + (1 if end == 1 else 0)
        wide = svg.num(self._area.width)
        area = f'<rect x="0" y="{svg.num(y)}" width="{wide}" height="{svg.num(height)}"/>'
        return f'<clipPath id="{name}">{area}</clipPath><g clip-path="url(#{name})">{drawn}</g>'

    def open_end(self, ribbon: SceneRibbon) -> str:
        """Return the end of a ribbon that has none: nothing read it, and it is still held."""
        colors = self._colors
        left, right = map(self._x, ribbon.waist)
        width = max(1.5, right - left)
        pale = f'fill="{mix(colors.mutation, 0.22, colors.page)}"'
        red = f'fill="{colors.mutation}"'
        return svg.rect(left, self._y(1), width, BAR, radius=0, style=pale) + svg.rect(
            left, self._y(1) + BAR, width, 2.5, radius=0, style=red
        )

    def bar(self, bar: SceneFoldBar) -> Iterator[str]:
        """Yield a bar of an edge with its name and time."""
        colors, forward, between = self._colors, bar.edge == "forward", bar.kind == "between"
        y = self._y(0) - BAR if forward else self._y(1) + 2
        left = self._x(bar.start)
        width = self._x(bar.end) - left - 1
        if width < (PAPER_MARGIN if between else 1):
            return
        hue = mix(colors.edge if forward else colors.backward, 0.2, colors.page)
        style = svg.stroke(colors.line) if between else f'fill="{hue}"'
        yield svg.rect(left, y, width, BAR - 2, radius=min(3, width / 2), style=style)
        name = bar.block or (f"line {bar.lineno}" if bar.lineno else "")
        names = {"block": name, "region": "compiled region", "between": "between ops"}
        name = names[bar.kind]
        time = format_duration(bar.ns) if bar.ns else ""
        for form in (" · ".join(filter(None, (name, time))) if name else "", name):
            if form and text_width(form, FONT_SIZE) < width - 8:
                x, fill = left + width / 2, colors.text2 if between else colors.text
                yield svg.text(x, y + 13, form, fill=fill, size=FONT_SIZE, anchor="middle")
                break

    def waists(self, ribbons: Sequence[SceneRibbon]) -> Iterator[str]:
        """Yield name and bytes of each block."""
        y = self._y(0.38)
        for block, run in groupby(ribbons, key=lambda each: each.block):
            members = list(run)
            left, right = self._x(members[0].waist[0]), self._x(members[-1].waist[1])
            nbytes = format_bytes(sum(each.nbytes for each in members))
            for text in (f"{block or 'model'} · {nbytes}", nbytes):
                width = text_width(text, FONT_SIZE, bold=True) + 14
                if width > right - left - 2:
                    continue
                x, style = (left + right) / 2, f'fill="{self._colors.page}"'
                yield svg.rect(x - width / 2, y - 9, width, 18, radius=9, style=style)
                fill = self._colors.text
                yield svg.text(
                    x, y + 4, text, fill=fill, size=FONT_SIZE, weight=600, anchor="middle"
                )
                break
