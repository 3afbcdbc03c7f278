"""The picture of a compiled region: two lanes, and ribbons for the values saved between them.

The forward is above and the backward below. Columns are the user's lines, from left to right in
the order of the forward, so the backward runs from right to left. A saved value is a chip between
the lanes; a ribbon leads from it to the backward ops that need it, as thick as its bytes. All
coordinates are computed here: renderers only draw the marks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    format_bytes,
    plural,
    short_location,
    source_line,
)
from autogradviz.scene.compiled.columns_by_line_or_block import (
    MAX_BLOCKS,
    OP_SIZE,
    LaneRow,
    arrange_columns,
    op_lines,
    saved_texts,
    spot,
)
from autogradviz.scene.compiled.place_columns import (
    BLOCK_GAP,
    GAP,
    GUTTER,
    HOOK,
    SMALL,
    Place,
    Ribbon,
    place_columns,
    ribbon_path,
)
from autogradviz.scene.label_text_and_width import range_label, text_width
from autogradviz.scene.schema import (
    SceneCompiledItem,
    SceneCompiledMark,
    SceneCompiledPicture,
    SceneCompiledSlot,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.compiled_region_types import (
        CompiledRegion,
        CompiledSlot,
    )
    from autogradviz.scene.compiled.columns_by_line_or_block import Column
    from autogradviz.scene.schema import CompiledDetail, CompiledShape

HEADER: Final = 62.0  # labels of blocks and lines
ROW: Final = 23.0
BOX: Final = 19.0
CHIP: Final = 19.0
CHIP_ROW: Final = 22.0
CURVES: Final = 64.0  # height in which ribbons change columns
CURVE: Final = 46.0  # height of the curve of recomputed bytes
LEGEND: Final = (
    ("box forward", "forward op"),
    ("box backward", "backward op"),
    ("box recomputed", "recomputed by a checkpoint"),
    ("box recomputed odd", "by the next checkpoint"),
    ("box partitioner", "recomputed by choice of the partitioner"),
    ("chip value", "saved value"),
    ("chip input", "saved input"),
    ("chip size", "saved size"),
    ("hook", "saved-tensor hook"),
    ("link value", "also needed here"),
)
MIN_WIDTH: Final = 480.0
READABLE_WIDTH: Final = 1150.0
"""A region whose columns for single lines are wider than this is first shown by blocks, of which
neighbors are merged, down to six."""

FEWER_BLOCKS: Final = (MAX_BLOCKS, 8, 6)
"""Maximum numbers of columns that are tried."""
MONO_ADVANCE: Final = 0.61  # of a character in a monospaced font, in ems


_make_mark = maker(SceneCompiledMark)
_make_item = maker(SceneCompiledItem)


@dataclass(slots=True)
class Tables:
    """Rows of the scene's tables, to which pictures append."""

    pictures: list[SceneCompiledPicture] = field(default_factory=list)
    marks: list[SceneCompiledMark] = field(default_factory=list)
    items: list[SceneCompiledItem] = field(default_factory=list)
    slots: list[SceneCompiledSlot] = field(default_factory=list)


def place_region(region: CompiledRegion, detail: CompiledDetail) -> list[Place]:
    """Return the columns of a picture, of blocks as many as are readable at once."""
    checkpoints = dict.fromkeys(op.checkpoint for op in region.forward_ops)
    checkpoints.pop(None, None)
    odd = {each for each in list(checkpoints)[1::2] if each is not None}
    most, *fewer = FEWER_BLOCKS
    places = place_columns(region, arrange_columns(region, detail, most), detail, odd)
    for limit in fewer if detail == "blocks" else ():
        if len(places) > limit and picture_width(places) > READABLE_WIDTH:
            places = place_columns(region, arrange_columns(region, detail, limit), detail, odd)
    return places


def picture_width(places: Sequence[Place]) -> float:
    """Return the width of the picture with these columns."""
    return max(places[-1].x + places[-1].width + BLOCK_GAP if places else 0, MIN_WIDTH)


def draw_region(
    tables: Tables,
    region: CompiledRegion,
    index: int,
    first_slot: int,
    detail: CompiledDetail,
    places: Sequence[Place],
    *,
    initial: bool,
) -> None:
    """Append one picture of a region to the tables.

    Args:
        tables: receive the marks.
        region: the region.
        index: its index among the scene's regions.
        first_slot: index of its first slot among the scene's slots.
        detail: one column for each block, or for each line.
        places: the columns.
        initial: whether this picture of the region is shown first.
    """
    _Picture(tables, region, index, first_slot, detail).draw(places, initial=initial)


class _Picture:
    def __init__(
        self,
        tables: Tables,
        region: CompiledRegion,
        index: int,
        first_slot: int,
        detail: CompiledDetail,
    ) -> None:
        self._tables = tables
        self._region = region
        self._region_index = index
        self._first_slot = first_slot
        self._detail = detail
        self._index = len(tables.pictures)
        self._first_mark = len(tables.marks)

    def draw(self, places: Sequence[Place], *, initial: bool) -> None:
        forward = max((len(place.forward) for place in places), default=0)
        backward = max((len(place.backward) for place in places), default=0)
        chips = max((len(place.ribbons) for place in places), default=0)
        self._top = 0.0 if any(place.column.block for place in places) else -20.0
        header = HEADER + self._top
        top = header + forward * ROW
        saved = top + 10
        curves = saved + chips * CHIP_ROW
        bottom = curves + CURVES
        end = bottom + backward * ROW
        peak = max((place.peak for place in places), default=0)
        below = end + (CURVE + 30 if peak else 20)
        width = picture_width(places)
        self._draw_lanes(width, header, top, saved, bottom, end)
        self._draw_blocks(places, end + 6)
        self._draw_ribbons(places, saved, curves, bottom)
        for place in places:
            self._draw_header(place)
            self._draw_rows(place, place.forward, top - len(place.forward) * ROW)
            self._draw_rows(place, place.backward, bottom + 4)
        if peak:
            self._draw_curve(places, peak, end + CURVE + 18)
        legend = len(self._tables.marks)
        height = self._draw_legend(below, width)
        self._tables.pictures.append(
            SceneCompiledPicture(
                index=self._index,
                region=self._region_index,
                detail=self._detail,
                width=width,
                height=height,
                legend=legend,
                hooks=any(r.before != r.nbytes for place in places for r in place.ribbons),
                initial=initial,
            )
        )

    def _mark(
        self,
        shape: CompiledShape,
        style: str,
        x: float = 0,
        y: float = 0,
        *,
        width: float = 0,
        height: float = 0,
        text: str = "",
        item: int = -1,
    ) -> None:
        self._tables.marks.append(
            _make_mark(
                picture=self._index,
                shape=shape,
                style=style,
                x=x,
                y=y,
                width=width,
                height=height,
                text=text,
                item=item,
            )
        )

    def _item(
        self,
        title: str,
        subtitle: str = "",
        lines: Sequence[str] = (),
        slots: Sequence[CompiledSlot] = (),
        place: tuple[str, int] = ("", 0),
    ) -> int:
        self._tables.items.append(
            _make_item(
                title=title,
                subtitle=subtitle,
                lines=tuple(lines),
                slots=tuple(self._first_slot + slot.position for slot in slots),
                filename=place[0],
                lineno=place[1],
            )
        )
        return len(self._tables.items) - 1

    def _draw_lanes(
        self, width: float, header: float, top: float, saved: float, bottom: float, end: float
    ) -> None:
        saved_notes = saved_texts(self._region)
        for y, height, name, note in (
            (header, top - header, "Forward", "left to right"),
            (saved, CHIP, "Saved", saved_notes[0]),
            (bottom, end - bottom, "Backward", "right to left"),
        ):
            if name != "Saved":
                self._mark("rect", "lane", 0, y - 4, width=width, height=height + 8)
            self._mark("text", "lane-name", 10, y + 13, text=name)
            self._mark("text", "muted", 10, y + 27, text=note)
        for note in saved_notes[1:]:
            self._mark("text", "muted", 10, saved + 40, width=84, text=note)

    def _draw_blocks(self, places: Sequence[Place], end: float) -> None:
        """Draw a frame around the columns of each block."""
        runs: list[list[Place]] = []
        for place in places:
            if runs and place.column.block == runs[-1][0].column.block and place.column.block:
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            first, last = run[0], run[-1]
            column = first.column
            if not column.block:
                continue
            checkpointed = any(place.column.checkpoint is not None for place in run)
            x = first.x - 7
            width = last.x + last.width + 7 - x
            style = "checkpoint" if checkpointed else "block"
            self._mark("rect", style, x, 0, width=width, height=end)
            label = column.block
            if column.last_block != column.block:
                label = range_label(column.block, column.last_block)
            named = text_width(label, 12.0, bold=True)
            room = width - 20 - named
            label_room = width - 14 if room < 0 else named
            fit = _fit(label, width - 14, 12.0)
            self._mark("text", "strong", first.x, 15, width=label_room, text=fit)
            note = self._block_note(column, room, checkpointed=checkpointed)
            self._mark(
                "text",
                "recompute-text" if checkpointed else "muted",
                first.x + named + 6,
                15,
                width=max(room, 0.0),
                text=note,
            )

    def _block_note(self, column: Column, room: float, *, checkpointed: bool) -> str:
        """Return the longest text about a block that has room after its name."""
        more = ["checkpoint"] if checkpointed else []
        if column.repeat == 1:
            notes = more or ([column.module_type] if self._detail == "lines" else [])
            return _fit(" · ".join(notes), room, SMALL)
        texts = [
            " · ".join([count, *rest])
            for rest in ([more, []] if more else [more])
            for count in (f"{column.repeat:,} identical", f"×{column.repeat:,}")
        ]
        return next((each for each in texts if text_width(each, SMALL) <= room), "")

    def _draw_header(self, place: Place) -> None:
        column, location = place.column, place.column.location
        title = _column_title(column)
        text = column.module_type if column.lines > 1 else location.text if location else ""
        spot = source_line(location)[:2]
        slots = [self._region.saved[position] for position in column.slots]
        counts = f"{plural(len(column.forward), 'forward op')}, {len(column.backward)} backward"
        item = self._item(title, text or counts, [counts] if text else [], slots, spot)
        title = _fit(title, place.width, OP_SIZE, bold=True)
        self._mark(
            "text", "line", place.x, self._top + 34, width=place.width, text=title, item=item
        )
        style = "muted" if column.lines > 1 else "code"
        fit = _fit(text, place.width, SMALL) if style == "muted" else _fit_code(text, place.width)
        if fit:
            self._mark("text", style, place.x, self._top + 49, width=place.width, text=fit)

    def _draw_rows(self, place: Place, rows: Sequence[LaneRow], top: float) -> None:
        for at, row in enumerate(rows):
            y = top + at * ROW
            item = self._item(
                row.label,
                plural(len(row.ops), "op"),
                op_lines(row.ops),
                place=spot(row.ops),
            )
            if row.style not in {"note", "note recomputed"}:
                self._mark(
                    "rect", f"box {row.style}", place.x, y, width=place.width, height=BOX, item=item
                )
            self._mark(
                "text",
                f"on {row.style}",
                place.x + place.width / 2,
                y + 13.4,
                text=_fit(row.label, place.width - 10, OP_SIZE, bold=row.style == "backward"),
                item=item,
            )

    def _draw_ribbons(
        self, places: Sequence[Place], saved: float, curves: float, bottom: float
    ) -> None:
        chips: list[tuple[Place, Ribbon, float, int]] = []
        for place in places:
            for level, ribbon in enumerate(place.ribbons):
                y = saved + level * CHIP_ROW
                users = ", ".join(_column_name(places[at].column) for at in ribbon.targets)
                item = self._item(
                    ribbon.label,
                    f"From {_column_name(place.column)} to {users or 'nothing'}",
                    slots=ribbon.slots,
                    place=source_line(ribbon.slots[0].location)[:2],
                )
                chips.append((place, ribbon, y, item))
        for _, ribbon, y, item in chips:
            start = y + CHIP
            for target in ribbon.targets[1:]:
                end = places[target].x + places[target].width / 2
                path = ribbon_path(ribbon.start, start, end, curves, bottom - 1)
                self._mark("path", f"link {ribbon.kind}", width=1, text=path, item=item)
        for _, ribbon, y, item in chips:
            if ribbon.targets:
                end = bottom - (HOOK + 1 if ribbon.hooked else 1)
                path = ribbon_path(ribbon.start, y + CHIP / 2, ribbon.port, curves, end)
                style = f"ribbon {ribbon.kind}"
                if ribbon.before != ribbon.nbytes:
                    thick = ribbon.thick_before
                    before = f"{style} before"
                    self._mark("path", before, width=thick, text=path, item=item)
                    style += " after"
                self._mark("path", style, width=ribbon.thick, text=path, item=item)
        for place, ribbon, y, item in chips:
            left = ribbon.start - max(ribbon.thick, 4) / 2
            right = place.x + place.width
            style = f"chip {ribbon.kind}"
            self._mark("rect", style, left, y, width=right - left, height=CHIP, item=item)
            bar = max(ribbon.thick, 4)
            self._mark("rect", f"bar {ribbon.kind}", left, y, width=bar, height=CHIP, item=item)
            start = max(left + bar, ribbon.start + (HOOK / 2 if ribbon.hooked else 0)) + 5
            label = _fit(ribbon.label, right - start - 3, SMALL)
            self._mark("text", "label", start, y + 13, text=label, item=item)
            if ribbon.hooked:
                self._draw_hooks(ribbon, y + (CHIP - HOOK) / 2, bottom - HOOK, item)

    def _draw_hooks(self, ribbon: Ribbon, pack: float, unpack: float, item: int) -> None:
        """Draw a box with a hook where a ribbon starts, and one where it ends."""
        ends = ((ribbon.start, pack), (ribbon.port, unpack)) if ribbon.targets else ()
        for x, y in ends:
            self._mark("rect", "hook", x - HOOK / 2, y, width=HOOK, height=HOOK, text="", item=item)
            path = f"M{x + 1.6:.1f} {y + 3:.1f}v4.6q0 2.2 -2 2.2t-2 -2.2"
            self._mark("path", "hook-icon", width=1.3, text=path, item=item)

    def _draw_curve(self, places: Sequence[Place], peak: int, base: float) -> None:
        """Draw the recomputed bytes that are alive while each column's backward runs."""
        top = max(places, key=lambda place: place.peak)
        self._mark("text", "lane-name", 10, base - CURVE + 22, text="Recomputed")
        self._mark("text", "muted", 10, base - CURVE + 36, text="bytes alive")
        steps = []
        for place in places:
            height = (CURVE - 14) * place.peak / peak
            steps.append(f"H{place.x - GAP / 2:.1f}V{base - height:.1f}")
        right = places[-1].x + places[-1].width + GAP / 2
        path = f"M{GUTTER - GAP / 2:.1f} {base:.1f}{''.join(steps)}H{right:.1f}V{base:.1f}Z"
        self._mark("path", "curve", text=path)
        label = f"peak {format_bytes(peak)}"
        self._mark("text", "curve-label", top.x, base - CURVE + 10, text=label)

    def _draw_legend(self, y: float, right: float) -> float:
        """Draw the meaning of the styles that the picture uses, and return where it ends."""
        used = {mark.style for mark in self._tables.marks[self._first_mark :]}
        x = 10.0
        for style, label in LEGEND:
            if style not in used:
                continue
            width = 27 + text_width(label, SMALL) + 16
            if x > 10 and x + width > right:  # noqa: PLR2004  not the first one of a line
                x, y = 10.0, y + 20
            if style.startswith("link"):
                path = f"M{x:.1f} {y + 6:.1f}h20"
                self._mark("path", style, width=1, text=path)
            else:
                self._mark("rect", style, x + 0.5, y, width=20, height=12)
            if style.startswith("chip"):
                self._mark("rect", f"bar {style[5:]}", x + 0.5, y, width=5, height=12)
            self._mark("text", "muted", x + 27, y + 9.6, width=width - 31, text=label)
            x += width
        return y + 18


def _column_title(column: Column) -> str:
    """Return "gpt.py:19", or "7 lines"."""
    if column.lines > 1:
        return plural(column.lines, "line")
    location = column.location
    if location is None:
        return "unknown line"
    return short_location(location)


def _column_name(column: Column) -> str:
    """Return a column's name for a sentence: "h.0, gpt.py:19"."""
    parts = (column.block, "" if column.block and column.lines > 1 else _column_title(column))
    return " ".join(part for part in parts if part)


def _fit(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """Return a text that is at most ``width`` pixels wide; the end of a longer one is left out."""
    if text_width(text, size, bold=bold) <= width:
        return text
    while text and text_width(f"{text}…", size, bold=bold) > width:
        text = text[:-1]
    return f"{text}…" if text else ""


def _fit_code(text: str, width: float) -> str:
    limit = int(width / (SMALL * MONO_ADVANCE))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
