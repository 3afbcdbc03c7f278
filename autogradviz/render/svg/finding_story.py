"""The story of a finding as pictures: an animated SVG, and a sequence of frames for print.

The graph is drawn once. A ring and a filled disc mark the station on display, on the graph, on
the strip of saved memory and in the list of stations. In the animation one station follows the
other; readers who prefer reduced motion see all numbers, the list, and the last station marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, short_path
from autogradviz.errors import GraphTooLargeError
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.draw_graph import MARGIN, MIN_WIDTH, draw_graph
from autogradviz.render.svg.themes_and_primitives import Theme, ThemeName, find_theme, mix
from autogradviz.render.svg.title_group_headers_and_legend import LINE, MONO_ADVANCE, wrap
from autogradviz.scene.layout.coordinates import place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from autogradviz.scene.layout.coordinates import Box
    from autogradviz.scene.schema import Scene, SceneCauseStep, SceneStory

MAX_BYTES: Final = 300_000
SECONDS: Final = 3
"""The time that the animation stays at a station."""

STRIP: Final = 44.0
"""Height of the strip of saved memory."""

MAX_BOXES: Final = 300
MAX_TEXT_LINES: Final = 3
RADIUS: Final = 9.0


def render_story(scene: Scene, story: SceneStory, *, theme: ThemeName = "light") -> str:
    """Return a story as an animated SVG of at most ``MAX_BYTES``.

    Args:
        scene: the scene, with its stories.
        story: one of them.
        theme: "light" or "dark".

    Raises:
        ValueError: if there is no such theme.
    """
    drawing = _Drawing(scene, story, find_theme(theme))
    text = drawing.animated()
    return text if len(text.encode()) <= MAX_BYTES else drawing.without_graph().animated()


def render_frames(scene: Scene, story: SceneStory, name: str) -> str:
    """Return a story as one SVG with a frame for each station, for a light page.

    Args:
        scene: the scene, with its stories.
        story: one of them.
        name: the id of the graph, which all frames use; unique on the page.
    """
    drawing = _Drawing(scene, story, find_theme("light"))
    text = drawing.frames(name)
    return text if len(text.encode()) <= MAX_BYTES else drawing.without_graph().frames(name)


def no_story(scene: Scene) -> str:
    """Return the picture of a recording that has no story to tell."""
    message = f"{scene.summary.title}: no finding of this recording has a story."
    line = svg.text(MARGIN, MARGIN, message, fill=find_theme("light").text)
    return _document(MIN_WIDTH, 2 * MARGIN, message, find_theme("light"), [line])


@dataclass(frozen=True, slots=True)
class _Mark:
    """The place of a station in the graph."""

    box: Box
    x: float  # of its disc
    y: float


class _Drawing:
    def __init__(self, scene: Scene, story: SceneStory, theme: Theme) -> None:
        self._scene = scene
        self._theme = theme
        self._title = scene.findings[story.finding].title
        self._steps = [scene.cause_steps[at] for at in story.steps]
        self._graph, self._marks = "", dict[int, _Mark]()
        self._graph_width = self._graph_height = 0.0
        self._draw_graph()
        self._width = max(self._graph_width + 2 * MARGIN, MIN_WIDTH)

    def without_graph(self) -> _Drawing:
        """Return the same drawing for a graph that is too large to be drawn."""
        self._graph, self._marks, self._graph_height = "", {}, 0.0
        self._width = MIN_WIDTH
        return self

    def _draw_graph(self) -> None:
        opened = {group.index for group in self._scene.groups if group.open}
        placement = place(self._scene, opened)
        if not self._scene.nodes or len(placement.boxes) > MAX_BOXES:
            return
        try:
            self._graph = draw_graph(self._scene, placement, self._theme)
        except GraphTooLargeError:
            return
        self._graph_width, self._graph_height = placement.width, placement.height
        found: dict[tuple[str, int], Box] = {(b.kind, b.ref): b for b in placement.boxes}
        counts: dict[int, int] = {}
        for at, step in enumerate(self._steps):
            box = self._visible(step.nodes[0], opened, found) if step.nodes else None
            if box is not None:
                count = counts[id(box)] = counts.get(id(box), -1) + 1
                x = box.x - self._left_of(box) - RADIUS - 4 - count * (2 * RADIUS + 3)
                self._marks[at] = _Mark(box, x, box.y + box.height / 2)

    def _left_of(self, box: Box) -> float:
        """Return the width of what is drawn on the left of a box."""
        return self._scene.nodes[box.ref].left_width if box.kind == "node" else 0.0

    def _visible(
        self, node: int, opened: set[int], found: Mapping[tuple[str, int], Box]
    ) -> Box | None:
        """Return the box of a node, or of the outermost closed group around it."""
        around, group = list[int](), self._scene.nodes[node].group
        while group > 0:
            around.append(group)
            group = self._scene.groups[group].parent
        closed = next((each for each in reversed(around) if each not in opened), None)
        return found.get(("node", node) if closed is None else ("group", closed))

    # --- documents --------------------------------------------------------------------------------

    def animated(self) -> str:
        """Return one picture whose mark goes from station to station."""
        count = len(self._steps)
        delays = "".join(
            f".s{at}{{animation-delay:-{(count - at) * SECONDS}s}}" for at in range(count)
        )
        style = (
            f"<style>.s{{opacity:0}}.s{count - 1}{{opacity:1}}"
            "@media (prefers-reduced-motion:no-preference){"
            f".s{{animation:s {count * SECONDS}s step-end infinite}}{delays}"
            f"@keyframes s{{0%{{opacity:1}}{100 / count:.2f}%{{opacity:0}}}}}}</style>"
        )
        y, parts = self._head()
        parts.insert(0, style)
        if self._graph:
            marks = [self._number(at) + self._shown(at, self._ring(at)) for at in self._marks]
            parts.append(self._at_graph(y, self._graph + "".join(marks)))
            y += self._graph_height + 24
        parts.append(self._strip(y, self._shown))
        y += STRIP + 52
        for at in range(count):
            row, height = self._row(at, y)
            tint = f'fill="{mix(self._theme.path, 0.12, self._theme.page)}"'
            shown = svg.rect(
                MARGIN - 8, y - 16, self._width - 2 * MARGIN + 16, height, radius=6, style=tint
            )
            parts += [self._shown(at, shown), row, self._shown(at, self._disc(at, MARGIN + 6, y))]
            y += height + 4
        return _document(self._width, y + 8, self._label(), self._theme, parts)

    def frames(self, name: str) -> str:
        """Return the frames of all stations below each other."""
        y, parts = self._head()
        if self._graph:
            parts.append(f'<defs><g id="{name}">{self._graph}</g></defs>')
        for at in range(len(self._steps)):
            row, height = self._row(at, y + 8)
            parts += [row, self._disc(at, MARGIN + 6, y + 8)]
            y += height + 16
            if self._graph:
                marks = "".join(map(self._number, self._marks))
                ring = self._ring(at) if at in self._marks else ""
                parts.append(self._at_graph(y, f'<use href="#{name}"/>{marks}{ring}'))
                y += self._graph_height + 20
            parts.append(self._strip(y, partial(_only, at)))
            y += STRIP + 52
        return _document(self._width, y, self._label(), self._theme, parts)

    def _label(self) -> str:
        texts = [f"{at}. {step.text}" for at, step in enumerate(self._steps, 1)]
        return f"{self._title}. {' '.join(texts)}"

    def _head(self) -> tuple[float, list[str]]:
        y, parts = MARGIN, []
        for line in wrap(self._title, self._width - 2 * MARGIN, 15, bold=True):
            parts.append(svg.text(MARGIN, y, line, fill=self._theme.mutation, size=15, weight=650))
            y += 20
        return y + 8, parts

    def _at_graph(self, y: float, content: str) -> str:
        x = (self._width - self._graph_width) / 2
        return f'<g transform="translate({svg.num(x)} {svg.num(y)})">{content}</g>'

    # --- marks ------------------------------------------------------------------------------------

    def _shown(self, at: int, content: str) -> str:
        """Return content that is visible only while a station is on display."""
        return f'<g class="s s{at}">{content}</g>'

    def _number(self, at: int) -> str:
        mark = self._marks[at]
        return self._circle(at, mark.x, mark.y, self._theme.page, self._theme.path)

    def _ring(self, at: int) -> str:
        mark = self._marks[at]
        box = mark.box
        ring = svg.stroke(self._theme.path, 2.6)
        outline = svg.rect(
            box.x - 4, box.y - 4, box.width + 8, box.height + 8, radius=8, style=ring
        )
        return outline + self._disc(at, mark.x, mark.y)

    def _disc(self, at: int, x: float, y: float) -> str:
        return self._circle(at, x, y, self._theme.path, self._theme.page)

    def _circle(self, at: int, x: float, y: float, fill: str, color: str) -> str:
        outline = svg.stroke(self._theme.path, 1.6, fill=fill)
        circle = f'<circle cx="{svg.num(x)}" cy="{svg.num(y)}" r="{svg.num(RADIUS)}" {outline}/>'
        return circle + svg.text(
            x, y + 4, f"{at + 1}", fill=color, size=11.5, weight=650, anchor="middle"
        )

    def _row(self, at: int, y: float) -> tuple[str, float]:
        """Return number, text, line and place of a station, and their height."""
        step, theme, left = self._steps[at], self._theme, MARGIN + 26
        width, top = self._width - MARGIN - left, y
        parts = [self._circle(at, MARGIN + 6, y, theme.page, theme.path)]
        lines = wrap(step.text, width, 12.5)
        if len(lines) > MAX_TEXT_LINES:
            lines = [*lines[: MAX_TEXT_LINES - 1], f"{lines[MAX_TEXT_LINES - 1]} …"]
        for line in lines:
            parts.append(svg.text(left, y + 4, line, fill=theme.text, size=12.5))
            y += LINE
        if step.filename:
            parts.append(_code(left, y + 4, _place(step), width, theme.text2))
            y += LINE
        return "".join(parts), y - top + 4

    def _strip(self, y: float, shown: Callable[[int, str], str]) -> str:
        """Return the curve of saved memory in the order of its changes, with the stations."""
        theme, memory = self._theme, self._scene.memory
        times = sorted({point.time_ns for point in memory} | {*self._times()})
        if not times:
            return ""
        room = (self._width - 2 * MARGIN) / max(1, len(times) - 1)
        x_of = {time: MARGIN + room * at for at, time in enumerate(times)}
        top = max((point.nbytes for point in memory), default=0) or 1
        d = f"M{svg.num(MARGIN)} {svg.num(y + STRIP)}"
        for point in memory:
            d += f"H{svg.num(x_of[point.time_ns])}V{svg.num(y + STRIP * (1 - point.nbytes / top))}"
        d += f"H{svg.num(self._width - MARGIN)}V{svg.num(y + STRIP)}Z"
        area = svg.path(d, svg.stroke(theme.saved, 1.2, fill=mix(theme.saved, 0.12, theme.page)))
        caption = f"saved for backward, in order; {format_bytes(top)} at most"
        parts = [svg.text(MARGIN, y - 4, caption, fill=theme.text2, size=10), area]
        last = -RADIUS
        for at, step in enumerate(self._steps):
            if step.time_ns < 0:
                continue
            x = x_of[step.time_ns]
            middle = last = max(x, last + 2 * RADIUS + 3)
            below = y + STRIP + 16
            line = svg.path(
                f"M{svg.num(x)} {svg.num(y)}V{svg.num(y + STRIP)}", svg.stroke(theme.path, 1.6)
            )
            parts.append(self._circle(at, middle, below, theme.page, theme.path))
            parts.append(shown(at, line + self._disc(at, middle, below)))
        return "".join(parts)

    def _times(self) -> Sequence[int]:
        return [step.time_ns for step in self._steps if step.time_ns >= 0]


def _only(chosen: int, at: int, content: str) -> str:
    """Return the content of the station that a frame shows, "" for the others."""
    return content if at == chosen else ""


def _place(step: SceneCauseStep) -> str:
    """Return "train.py:31  gate.mul_(0.5)"."""
    place = short_path(step.filename) + (f":{step.lineno}" if step.lineno else "")
    return f"{place}  {step.line.strip()}"


def _code(x: float, y: float, content: str, width: float, color: str) -> str:
    limit = int(width / (11 * MONO_ADVANCE))
    shown = content if len(content) <= limit else f"{content[: limit - 1]}…"
    return (
        f'<text x="{svg.num(x)}" y="{svg.num(y)}" font-size="11" font-family="{svg.MONO}"'
        f' fill="{color}" xml:space="preserve">{svg.escape(shown)}</text>'
    )


def _document(width: float, height: float, label: str, theme: Theme, parts: Sequence[str]) -> str:
    size = f'width="{svg.num(width)}" height="{svg.num(height)}"'
    view = f'viewBox="0 0 {svg.num(width)} {svg.num(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" data-autogradviz="story" {size} {view}'
        f' role="img" aria-label="{svg.escape(label)}" style="max-width:100%;height:auto"'
        f' font-family="{svg.FONT}">\n'
        f'<rect width="100%" height="100%" fill="{theme.page}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
