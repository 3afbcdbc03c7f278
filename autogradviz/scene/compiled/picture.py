"""The picture of a compiled region: two lanes, and ribbons for the values saved between them.

The forward is above and the backward below. Columns are the user's lines, from left to right in
the order of the forward, so the backward runs from right to left. A saved value is a chip between
the lanes; a ribbon leads from it to the backward ops that need it, as thick as its bytes. All
coordinates are computed here: renderers only draw the marks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_shape,
    short_op_name,
    short_path,
)
from autogradviz.compiled_graphs.value_names import ITEM
from autogradviz.fast_dataclass import maker
from autogradviz.scene.compiled.columns import Columns, arrange_columns, is_view, slot_hook
from autogradviz.scene.compiled.recomputed_bytes import recomputed_alive
from autogradviz.scene.label_text import plural
from autogradviz.scene.schema import (
    SceneCompiledItem,
    SceneCompiledMark,
    SceneCompiledPicture,
    SceneCompiledSlot,
)
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.compiled_region_types import (
        CompiledHook,
        CompiledOp,
        CompiledRegion,
        CompiledSlot,
    )
    from autogradviz.scene.compiled.columns import Column
    from autogradviz.scene.schema import CompiledDetail, CompiledShape

GUTTER: Final = 100.0  # labels of the lanes
GAP: Final = 14.0  # between columns
BLOCK_GAP: Final = 10.0  # more between blocks
MIN_COLUMN: Final = 96.0
MAX_COLUMN: Final = 176.0
HEADER: Final = 62.0  # labels of blocks and lines
ROW: Final = 23.0
BOX: Final = 19.0
CHIP: Final = 19.0
CHIP_ROW: Final = 22.0
CURVES: Final = 64.0  # height in which ribbons change columns
CURVE: Final = 46.0  # height of the curve of recomputed bytes
MAX_LABEL: Final = 22  # characters of the name of a saved value
MAX_ROWS: Final = {"blocks": 6, "lines": 8}
"""Boxes of one kind in one lane of a column."""

MAX_RIBBONS: Final = 4  # of one column, inputs apart
MAX_LINKS: Final = 4  # further columns that need the same value
MAX_ITEM_LINES: Final = 16
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
THICKEST: Final = 13.0
THINNEST: Final = 1.5
HOOK: Final = 13.0
MONO_ADVANCE: Final = 0.61  # of a character in a monospaced font, in ems
OP_SIZE: Final = 11.0
SMALL: Final = 10.0


_make_mark = maker(SceneCompiledMark)
_make_item = maker(SceneCompiledItem)


@dataclass(slots=True)
class Tables:
    """Rows of the scene's tables, to which pictures append."""

    pictures: list[SceneCompiledPicture] = field(default_factory=list)
    marks: list[SceneCompiledMark] = field(default_factory=list)
    items: list[SceneCompiledItem] = field(default_factory=list)
    slots: list[SceneCompiledSlot] = field(default_factory=list)


@dataclass(slots=True)
class _Row:
    """One box of a lane, or one line of text instead of views or of what is left out."""

    label: str
    style: str
    ops: list[CompiledOp]

    @property
    def width(self) -> float:
        """Width of the label."""
        return text_width(self.label, OP_SIZE, bold=self.style == "backward")


@dataclass(slots=True)
class _Ribbon:
    """One chip and its ribbon: one saved value or several."""

    slots: list[CompiledSlot]
    kind: str
    label: str
    nbytes: int
    before: int  # bytes without the hook, else the same
    targets: list[int]  # columns of the ops that need it, the one that needs it most first
    hooked: bool
    start: float = 0.0
    thick: float = 0.0
    thick_before: float = 0.0
    port: float = 0.0  # x at its end

    @property
    def room(self) -> float:
        """Width that it takes beside others."""
        return max(self.thick, self.thick_before, HOOK if self.hooked else 3.0) + 3


@dataclass(slots=True)
class _Place:
    """A column with its position and its content."""

    column: Column
    x: float
    width: float
    forward: list[_Row]
    backward: list[_Row]
    ribbons: list[_Ribbon]
    peak: int  # recomputed bytes alive


def draw_region(
    tables: Tables,
    region: CompiledRegion,
    index: int,
    first_slot: int,
    detail: CompiledDetail,
) -> None:
    """Append one picture of a region to the tables.

    Args:
        tables: receive the marks.
        region: the region.
        index: its index among the scene's regions.
        first_slot: index of its first slot among the scene's slots.
        detail: one column for each block, or for each line.
    """
    _Picture(tables, region, index, first_slot, detail).draw()


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
        checkpoints = dict.fromkeys(op.checkpoint for op in region.forward_ops)
        checkpoints.pop(None, None)
        self._odd = {
            each for each in list(checkpoints)[1::2] if each is not None
        }  # every second checkpoint has its own style
        self._hooks = {hook.slot: hook for hook in region.hooks if hook.inlined}

    def draw(self) -> None:
        arranged = arrange_columns(self._region, self._detail)
        places = self._measure(arranged)
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
        last = places[-1] if places else None
        width = max(last.x + last.width + BLOCK_GAP if last else 0, MIN_WIDTH)
        self._draw_lanes(width, header, top, saved, bottom, end)
        self._draw_blocks(places, end + 6)
        self._draw_ribbons(places, saved, curves, bottom)
        for place in places:
            self._draw_header(place)
            self._draw_rows(place, place.forward, top - len(place.forward) * ROW)
            self._draw_rows(place, place.backward, bottom + 4)
        if peak:
            self._draw_curve(places, peak, end + CURVE + 18)
        height = self._draw_legend(below, width)
        self._tables.pictures.append(
            SceneCompiledPicture(
                index=self._index,
                region=self._region_index,
                detail=self._detail,
                width=width,
                height=height,
                hooks=any(r.before != r.nbytes for place in places for r in place.ribbons),
                initial=False,
            )
        )

    # --- content --------------------------------------------------------------------------

    def _measure(self, arranged: Columns) -> list[_Place]:
        alive = dict(
            zip(
                (op.name for op in self._region.backward_ops),
                recomputed_alive(self._region),
                strict=True,
            )
        )
        ribbons = [self._ribbons(column, arranged.backward_column) for column in arranged.columns]
        largest = max((max(r.before, r.nbytes) for each in ribbons for r in each), default=0)
        places: list[_Place] = []
        x = GUTTER
        for column, own in zip(arranged.columns, ribbons, strict=True):
            forward = _rows(column.forward, MAX_ROWS[self._detail], None)
            backward = _rows(column.backward, MAX_ROWS[self._detail], self._odd)
            widths = [row.width + 14 for row in forward + backward]
            width = min(max([MIN_COLUMN, *widths]), MAX_COLUMN)
            # Each chip lies right of the ribbons of those above it.
            need = self._set_thickness(own, max(largest, 1))
            width = max(width, min(need, MAX_COLUMN + 30))
            if places and column.block != places[-1].column.block:
                x += BLOCK_GAP
            peak = max((alive[op.name] for op in column.backward), default=0)
            for ribbon in own:
                ribbon.start += x
            places.append(_Place(column, x, width, forward, backward, own, peak))
            x += width + GAP
        _set_ports(places)
        return places

    def _set_thickness(self, ribbons: Sequence[_Ribbon], largest: int) -> float:
        """Set thickness and start of the ribbons of a column, and return the width they need."""
        at = need = 0.0
        for ribbon in ribbons:
            ribbon.thick = max(THINNEST, THICKEST * ribbon.nbytes / largest)
            ribbon.thick_before = max(THINNEST, THICKEST * ribbon.before / largest)
            ribbon.start = at + ribbon.room / 2
            at += ribbon.room
            need = max(need, at + text_width(ribbon.label, SMALL) + 14)
        return need

    def _ribbons(self, column: Column, backward_column: dict[str, int]) -> list[_Ribbon]:
        """Return the ribbons that start in a column, those that end farthest left first."""
        slots = [self._region.saved[position] for position in column.slots]
        values = sorted((s for s in slots if s.kind == "value"), key=lambda s: -s.nbytes)
        many = self._detail == "blocks" and len(values) > 1
        single = [] if many else values[:MAX_RIBBONS]
        rest = values if many else values[MAX_RIBBONS:]
        groups = [[slot] for slot in single] + [rest]
        groups += [[s for s in slots if s.kind == kind] for kind in ("input", "size")]
        ribbons = [self._ribbon(group, backward_column) for group in groups if group]
        return sorted(ribbons, key=lambda ribbon: ribbon.targets[:1])

    def _ribbon(self, slots: list[CompiledSlot], backward_column: dict[str, int]) -> _Ribbon:
        needed = Counter(
            backward_column[op.name]
            for slot in slots
            for op in slot.needed_by
            if op.name in backward_column
        )
        hooks = [hook for slot in slots if (hook := self._hook(slot)) is not None]
        nbytes = sum(slot.nbytes for slot in slots)
        change = sum(hook.nbytes_before - hook.nbytes_after for hook in hooks)
        return _Ribbon(
            slots=slots,
            kind=slots[0].kind,
            label=_slots_label(slots, nbytes, nbytes + change),
            nbytes=nbytes,
            before=nbytes + change,
            targets=[target for target, _ in needed.most_common(1 + MAX_LINKS)],
            hooked=bool(hooks),
        )

    def _hook(self, slot: CompiledSlot) -> CompiledHook | None:
        return self._hooks.get(slot_hook(slot))

    # --- marks ----------------------------------------------------------------------------

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
        for y, height, name, note in (
            (header, top - header, "Forward", "left to right"),
            (saved, CHIP, "Saved", format_bytes(self._region.saved_nbytes)),
            (bottom, end - bottom, "Backward", "right to left"),
        ):
            if name != "Saved":
                self._mark("rect", "lane", 0, y - 4, width=width, height=height + 8)
            self._mark("text", "lane-name", 10, y + 13, text=name)
            self._mark("text", "muted", 10, y + 27, text=note)

    def _draw_blocks(self, places: Sequence[_Place], end: float) -> None:
        """Draw a frame around the columns of each block."""
        runs: list[list[_Place]] = []
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
                label += f" – {column.last_block}"
            notes = [f"{column.repeat} identical"] if column.repeat > 1 else []
            notes += ["checkpoint"] if checkpointed else []
            if not notes and self._detail == "lines":
                notes = [column.module_type]
            self._mark("text", "strong", first.x, 15, text=_fit(label, width - 14, 12.0))
            room = width - 20 - text_width(label, 12.0, bold=True)
            note = _fit(" · ".join(notes), room, SMALL)
            self._mark(
                "text",
                "recompute-text" if checkpointed else "muted",
                first.x + text_width(label, 12.0, bold=True) + 6,
                15,
                text=note,
            )

    def _draw_header(self, place: _Place) -> None:
        column, location = place.column, place.column.location
        title = _column_title(column)
        text = column.module_type if column.lines > 1 else location.text if location else ""
        spot = (location.place, location.lineno) if location else ("", 0)
        slots = [self._region.saved[position] for position in column.slots]
        counts = f"{plural(len(column.forward), 'forward op')}, {len(column.backward)} backward"
        item = self._item(title, text or counts, [counts] if text else [], slots, spot)
        title = _fit(title, place.width, OP_SIZE, bold=True)
        self._mark("text", "line", place.x, self._top + 34, text=title, item=item)
        style = "muted" if column.lines > 1 else "code"
        fit = _fit(text, place.width, SMALL) if style == "muted" else _fit_code(text, place.width)
        if fit:
            self._mark("text", style, place.x, self._top + 49, text=fit)

    def _draw_rows(self, place: _Place, rows: Sequence[_Row], top: float) -> None:
        for at, row in enumerate(rows):
            y = top + at * ROW
            item = self._item(
                row.label,
                plural(len(row.ops), "op"),
                _op_lines(row.ops),
                place=_spot(row.ops),
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
        self, places: Sequence[_Place], saved: float, curves: float, bottom: float
    ) -> None:
        chips: list[tuple[_Place, _Ribbon, float, int]] = []
        for place in places:
            for level, ribbon in enumerate(place.ribbons):
                y = saved + level * CHIP_ROW
                users = ", ".join(_column_name(places[at].column) for at in ribbon.targets)
                item = self._item(
                    ribbon.label,
                    f"From {_column_name(place.column)} to {users or 'nothing'}",
                    slots=ribbon.slots,
                    place=_slot_spot(ribbon.slots[0]),
                )
                chips.append((place, ribbon, y, item))
        for _, ribbon, y, item in chips:
            start = y + CHIP
            for target in ribbon.targets[1:]:
                end = places[target].x + places[target].width / 2
                path = _ribbon_path(ribbon.start, start, end, curves, bottom - 1)
                self._mark("path", f"link {ribbon.kind}", width=1, text=path, item=item)
        for _, ribbon, y, item in chips:
            if ribbon.targets:
                end = bottom - (HOOK + 1 if ribbon.hooked else 1)
                path = _ribbon_path(ribbon.start, y + CHIP / 2, ribbon.port, curves, end)
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

    def _draw_hooks(self, ribbon: _Ribbon, pack: float, unpack: float, item: int) -> None:
        """Draw a box with a hook where a ribbon starts, and one where it ends."""
        ends = ((ribbon.start, pack), (ribbon.port, unpack)) if ribbon.targets else ()
        for x, y in ends:
            self._mark("rect", "hook", x - HOOK / 2, y, width=HOOK, height=HOOK, text="", item=item)
            path = f"M{x + 1.6:.1f} {y + 3:.1f}v4.6q0 2.2 -2 2.2t-2 -2.2"
            self._mark("path", "hook-icon", width=1.3, text=path, item=item)

    def _draw_curve(self, places: Sequence[_Place], peak: int, base: float) -> None:
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
            self._mark("text", "muted", x + 27, y + 9.6, text=label)
            x += width
        return y + 18


def _set_ports(places: Sequence[_Place]) -> None:
    """Distribute the ends of ribbons over the columns in which they end."""
    arriving: dict[int, list[_Ribbon]] = {}
    for place in places:
        for ribbon in place.ribbons:
            if ribbon.targets:
                arriving.setdefault(ribbon.targets[0], []).append(ribbon)
    for target, ribbons in arriving.items():
        place = places[target]
        ribbons.sort(key=lambda ribbon: ribbon.start)
        rooms = [ribbon.room for ribbon in ribbons]
        scale = min(1.0, place.width / sum(rooms))
        own = [ribbon for ribbon in ribbons if place.x <= ribbon.start <= place.x + place.width]
        # Straight down where possible: start where the first ribbon of the same column starts.
        before = sum(rooms[: ribbons.index(own[0])]) if own else 0
        at = own[0].start - own[0].room / 2 - before if own else place.x
        at = min(max(at, place.x), place.x + place.width - sum(rooms) * scale)
        for ribbon, room in zip(ribbons, rooms, strict=True):
            ribbon.port = at + room * scale / 2
            at += room * scale


def _column_title(column: Column) -> str:
    """Return "gpt.py:19", or "7 lines"."""
    if column.lines > 1:
        return plural(column.lines, "line")
    location = column.location
    if location is None:
        return "unknown line"
    return f"{short_path(location.place).split('/')[-1]}:{location.lineno}"


def _column_name(column: Column) -> str:
    """Return a column's name for a sentence: "h.0, gpt.py:19"."""
    parts = (column.block, "" if column.block and column.lines > 1 else _column_title(column))
    return " ".join(part for part in parts if part)


def _rows(ops: Sequence[CompiledOp], limit: int, odd: set[int] | None) -> list[_Row]:
    """Return the boxes of one lane of a column: recomputed ops first, views folded.

    Args:
        ops: the ops of the lane.
        limit: maximum number of boxes of each kind.
        odd: checkpoints with the second style; None in the forward.
    """
    rows: dict[tuple[str, str], _Row] = {}
    views: dict[str, _Row] = {}
    for op in ops:
        style = "forward" if odd is None else _style(op, odd)
        if is_view(op):
            note = "note recomputed" if op.cause else "note"
            views.setdefault(note, _Row("", note, [])).ops.append(op)
        else:
            label = display_op_name(short_op_name(op.target)).removesuffix("_data")
            rows.setdefault((label, style), _Row(label, style, [])).ops.append(op)
    recomputed: list[_Row] = []
    others: list[_Row] = []
    for row in rows.values():
        row.label += f" ×{len(row.ops)}" if len(row.ops) > 1 else ""
        (others if row.style in {"forward", "backward"} else recomputed).append(row)
    # Twins are in the order of the forward.
    recomputed.sort(key=lambda row: row.ops[0].forward_op.position if row.ops[0].forward_op else 0)
    for note, row in views.items():
        row.label = plural(len(row.ops), "view")
        if note == "note recomputed":
            row.label += " recomputed"
        (recomputed if note == "note recomputed" else others).append(row)
    return _shorten(recomputed, limit) + _shorten(others, limit)


def _shorten(rows: list[_Row], limit: int) -> list[_Row]:
    """Return at most ``limit`` rows: the last one stands for the rest."""
    if len(rows) <= limit:
        return rows
    rest = [op for row in rows[limit - 1 :] for op in row.ops]
    return [*rows[: limit - 1], _Row(f"{len(rest):,} more", "note", rest)]


def _style(op: CompiledOp, odd: set[int]) -> str:
    if op.cause is None:
        return "backward"
    if op.cause == "partitioner":
        return "partitioner"
    return "recomputed odd" if op.checkpoint in odd else "recomputed"


def _slots_label(slots: Sequence[CompiledSlot], nbytes: int, before: int) -> str:
    kind = slots[0].kind
    if kind == "size":
        return plural(len(slots), "size")
    if len(slots) == 1:
        name = slots[0].source.split(".")[-1] if kind == "input" else ""
        name = name or _value_name(slots[0])
    else:
        name = plural(len(slots), kind)
    name, size = elide(name, MAX_LABEL), format_bytes(nbytes)
    return f"{name} · {size}" if before == nbytes else f"{name} · {format_bytes(before)} → {size}"


def _value_name(slot: CompiledSlot) -> str:
    """Return the name of a saved value; one of several results has the name of their op."""
    op = slot.op
    one_of_several = op is not None and op.target == ITEM and op.arguments
    return op.arguments[0] if op is not None and one_of_several else slot_hook(slot)


def _op_lines(ops: Sequence[CompiledOp]) -> list[str]:
    lines = []
    for op in ops[:MAX_ITEM_LINES]:
        parts = [op.name, op.symbolic_shape or (format_shape(op.shape) if op.shape else "")]
        parts += [format_bytes(op.nbytes) if op.nbytes else "", op.module]
        causes = {"checkpoint": "recomputed by its checkpoint", "policy": "recomputed by a policy"}
        if op.cause is not None:
            parts.append(causes.get(op.cause, "recomputed: the partitioner chose it"))
        parts.append("accumulates gradients" if op.sums_gradients else "")
        lines.append(" · ".join(part for part in parts if part))
    if len(ops) > MAX_ITEM_LINES:
        lines.append(f"and {len(ops) - MAX_ITEM_LINES:,} more")
    return lines


def _spot(ops: Sequence[CompiledOp]) -> tuple[str, int]:
    location = ops[0].location
    return (location.place, location.lineno) if location else ("", 0)


def _slot_spot(slot: CompiledSlot) -> tuple[str, int]:
    return (slot.location.place, slot.location.lineno) if slot.location else ("", 0)


def _ribbon_path(x: float, y: float, end_x: float, curves: float, end_y: float) -> str:
    """Return a line that goes straight down, then into another column."""
    start = f"M{x:.1f} {y:.1f}"
    if abs(end_x - x) < 0.05:  # noqa: PLR2004  equal after rounding
        return f"{start}V{end_y:.1f}"
    middle = (curves + end_y) / 2
    return (
        f"{start}V{curves:.1f}"
        f"C{x:.1f} {middle:.1f} {end_x:.1f} {middle:.1f} {end_x:.1f} {end_y:.1f}"
    )


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
