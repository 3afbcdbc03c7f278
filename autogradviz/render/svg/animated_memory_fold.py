"""The film of a fold: styles by which its SVG plays the step, without a script.

Time passes in ``FRAMES`` frames: half of them follow the saves of the forward, half the releases of
backward. In each frame a ribbon is lit if its storages are held, the mark is at the work that runs,
and the counter has the bytes that are held. Readers who prefer reduced motion see the fold as it is
in print.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.render.svg import themes_and_primitives as svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.render.svg.themes_and_primitives import Theme
    from autogradviz.scene.schema import Scene, SceneFold, SceneRibbon

FRAMES: Final = 96
REST: Final = 10
"""Frames at the end, before the film begins again."""

SECONDS: Final = 12
PALE: Final = 0.13
SCALE: Final = 100_000
GAUGE: Final = (140.0, 5.0)


class Film:
    """Plays the ribbons of one fold."""

    def __init__(self, scene: Scene, fold: SceneFold, ribbons: Sequence[SceneRibbon]) -> None:
        self._storages = scene.counted_storages
        self._fold = fold
        self._ribbons = [each for each in ribbons if not each.elsewhere]
        self.times = self._times()
        held = [[self._held(each, time) for time in self.times] for each in self._ribbons]
        self.held = [sum(each[at] for each in held) for at in range(len(self.times))]
        self._lit = {
            id(ribbon): _runs([2 * nbytes > ribbon.nbytes for nbytes in row])
            for ribbon, row in zip(self._ribbons, held, strict=True)
        }

    def _times(self) -> list[int]:
        """Return the time of each frame."""
        turn, half = self._fold.turn_ns, FRAMES // 2
        members = [self._storages[at] for ribbon in self._ribbons for at in ribbon.members]
        starts = sorted(start for each in members for start in each.holds[::2])
        ends = sorted(end for each in members for end in each.holds[1::2] if end >= 0)
        before = [time for time in starts if turn < 0 or time <= turn]
        after = [time for time in [*ends, *starts] if 0 <= turn < time]
        after.sort()
        first = min([self._fold.start_ns, *(time - 1 for time in starts[:1])])
        chosen = {first, *_spread(before, half), *_spread(after, half)}
        return sorted(chosen | {max(starts, key=self._all_held, default=first)})

    def _all_held(self, time_ns: int) -> int:
        return sum(self._held(each, time_ns) for each in self._ribbons)

    def _held(self, ribbon: SceneRibbon, time_ns: int) -> int:
        """Return the bytes that a ribbon holds at a time."""
        nbytes = 0
        for at in ribbon.members:
            holds = self._storages[at].holds
            if any(
                start <= time_ns and (end < 0 or end > time_ns)
                for start, end in zip(holds[::2], holds[1::2], strict=True)
            ):
                nbytes += self._storages[at].nbytes
        return nbytes

    def name_of(self, ribbon: SceneRibbon) -> str:
        """Return the class of a ribbon: those that are lit in the same frames have one."""
        runs = self._lit.get(id(ribbon), ())
        return "f" + "_".join(f"{first}-{last}" for first, last in runs) if runs else "unlit"

    def style(self, x_of: Sequence[float], top: float, bottom: float) -> str:
        """Return the style of the document.

        Args:
            x_of: x of the left and of the right end of the ribbons.
            top: y of the mark in the forward.
            bottom: y of the mark in backward.
        """
        count = len(self.times) + REST
        rules = [".now,.gauge,.mark{opacity:0}@media (prefers-reduced-motion:no-preference){"]
        rules.append(f".still{{opacity:0}}.unlit{{opacity:{PALE}}}")
        rules.append(f".gauge,.mark{{opacity:1;animation:{SECONDS}s infinite}}")
        names = {self.name_of(each): self._lit[id(each)] for each in self._ribbons}
        for name, runs in sorted(names.items()):
            if runs:
                rules.append(f".{name}{{animation:{name} {SECONDS}s linear infinite}}")
                rules.append(f"@keyframes {name}{{{_fade(runs, count)}}}")
        frame = 100 / count
        rules.append(f".now{{animation:now {SECONDS}s step-end infinite}}")
        rules.append(f"@keyframes now{{0%{{opacity:1}}{frame:.2f}%{{opacity:0}}}}")
        peak = max(self.held, default=0) or 1
        sizes = [*self.held, *[self.held[-1]] * REST]
        steps = "".join(
            f"{at * frame:.2f}%{{transform:scaleX({size / peak:.3f})}}"
            for at, size in enumerate(sizes)
        )
        rules.append(f".gauge{{animation-name:gauge}}@keyframes gauge{{{steps}}}")
        places = [self._place(time, x_of, top, bottom) for time in self.times]
        places += [places[-1]] * REST
        steps = "".join(
            f"{at * frame:.2f}%{{transform:translate({svg.num(x)}px,{svg.num(y)}px)}}"
            for at, (x, y) in enumerate(places)
        )
        rules.append(f".mark{{animation-name:mark}}@keyframes mark{{{steps}}}}}")
        return f"<style>{''.join(rules)}</style>"

    def _place(
        self, time_ns: int, x_of: Sequence[float], top: float, bottom: float
    ) -> tuple[float, float]:
        """Return the place of the mark: after the last save, or before the last read."""
        left, right = x_of
        turn = self._fold.turn_ns
        if turn >= 0 and time_ns > turn:
            read = [
                each.bottom[0]
                for each in self._ribbons
                if each.bottom and 0 <= each.read_ns <= time_ns
            ]
            return left + (right - left) * min(read, default=SCALE) / SCALE, bottom
        saved = [
            each.top[1]
            for each in self._ribbons
            if each.saved_ns <= time_ns and not each.recomputed
        ]
        return left + (right - left) * max(saved, default=0) / SCALE, top

    def counter(self, x: float, y: float, colors: Theme) -> str:
        """Return the counter of held bytes, right-aligned at ``x``, and its gauge."""
        count = len(self.times) + REST

        def write(words: str) -> str:
            return svg.text(x, y, words, fill=colors.text, size=15, weight=700, anchor="end")

        parts = []
        frames = [*self.held, *[self.held[-1]] * REST]
        for at, nbytes in enumerate(frames):
            delay = SECONDS * (at - count) / count
            text = write(f"{format_bytes(nbytes)} held now")
            parts.append(f'<g class="now" style="animation-delay:{delay:.2f}s">{text}</g>')
        most = write(f"{format_bytes(self._fold.peak_nbytes)} at the peak")
        parts.append(f'<g class="still">{most}</g>')
        width, height = GAUGE
        bar = svg.rect(0, 0, width, height, radius=2, style=f'fill="{colors.saved}"')
        place = f"translate({svg.num(x - width)} {svg.num(y + 7)})"
        parts.append(f'<g transform="{place}"><g class="gauge">{bar}</g></g>')
        return "".join(parts)

    def mark(self, colors: Theme) -> str:
        """Return the mark of the work that runs."""
        shape = svg.path("M-6 -9H6L0 0Z", f'fill="{colors.path}"')
        return f'<g class="mark">{shape}</g>'


def _spread(times: Sequence[int], count: int) -> list[int]:
    """Return ``count`` of the times, or each of them, with as many others between them."""
    if len(times) <= count:
        return list(times)
    return [times[(at + 1) * len(times) // count - 1] for at in range(count)]


def _runs(lit: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    """Return the first and the last frame of each run of frames that are lit."""
    at, found = 0, []
    for on, run in groupby(lit):
        size = sum(1 for _ in run)
        if on:
            found.append((at, at + size - 1))
        at += size
    return tuple(found)


def _fade(runs: Sequence[tuple[int, int]], count: int) -> str:
    """Return the keyframes of a ribbon that is lit in some runs of frames, of ``count`` in all."""
    pale, rules, before = f"opacity:{PALE}", [], 0.0
    for first, last in runs:
        start, end = 100 * first / count, 100 * (last + 1) / count
        dark = max(before, start - 50 / count)
        rules.append(f"{before:.2f}%,{dark:.2f}%{{{pale}}}{start:.2f}%,{end:.2f}%{{opacity:1}}")
        before = min(100.0, end + 50 / count)
    return "".join([*rules, f"{before:.2f}%,100%{{{pale}}}"])
