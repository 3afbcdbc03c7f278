"""Positions and widths of the columns of a compiled region, and the ribbons between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.compiled_graphs.read_graph_text import ITEM
from autogradviz.diagnose.evidence.compiled_code import values_of_backward
from autogradviz.scene.compiled.columns_by_line_or_block import lane_rows, slot_hook
from autogradviz.scene.label_text_and_width import elide, text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.compiled_region_types import (
        CompiledHook,
        CompiledRegion,
        CompiledSlot,
    )
    from autogradviz.scene.compiled.columns_by_line_or_block import Column, Columns, LaneRow
    from autogradviz.scene.schema import CompiledDetail


# --- ribbons of saved values: what they hold, where they end, and the lines that they follow ------


MAX_LABEL: Final = 22  # characters of the name of a saved value
HOOK: Final = 13.0


@dataclass(slots=True)
class Ribbon:
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
class Place:
    """A column with its position and its content."""

    column: Column
    x: float
    width: float
    forward: list[LaneRow]
    backward: list[LaneRow]
    ribbons: list[Ribbon]
    peak: int  # recomputed bytes alive


def set_ports(places: Sequence[Place]) -> None:
    """Distribute the ends of ribbons over the columns in which they end."""
    arriving: dict[int, list[Ribbon]] = {}
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


def slots_label(slots: Sequence[CompiledSlot], nbytes: int, before: int) -> str:
    """Return name and bytes of saved values, with the bytes before hooks packed them."""
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


def ribbon_path(x: float, y: float, end_x: float, curves: float, end_y: float) -> str:
    """Return a line that goes straight down, then into another column."""
    start = f"M{x:.1f} {y:.1f}"
    if abs(end_x - x) < 0.05:  # noqa: PLR2004  equal after rounding
        return f"{start}V{end_y:.1f}"
    middle = (curves + end_y) / 2
    return (
        f"{start}V{curves:.1f}"
        f"C{x:.1f} {middle:.1f} {end_x:.1f} {middle:.1f} {end_x:.1f} {end_y:.1f}"
    )


# --- positions and widths of the columns of a compiled region, and the ribbons that start in them -


GUTTER: Final = 100.0  # labels of the lanes
GAP: Final = 14.0  # between columns
BLOCK_GAP: Final = 10.0  # more between blocks
MIN_COLUMN: Final = 96.0
MAX_COLUMN: Final = 176.0
MAX_RIBBONS: Final = 4  # of one column, inputs apart
MAX_LINKS: Final = 4  # further columns that need the same value
THICKEST: Final = 13.0
THINNEST: Final = 1.5
SMALL: Final = 10.0
MAX_ROWS: Final = {"blocks": 6, "lines": 8}
"""Boxes of one kind in one lane of a column."""


def recomputed_alive(region: CompiledRegion) -> list[int]:
    """Return the recomputed bytes that are alive while each backward op runs, in their order."""
    changes = [0] * (len(region.backward_ops) + 1)
    lives = values_of_backward(region)
    for op in region.backward_ops:
        if op.cause is not None and op.name in lives:
            begin, end = lives[op.name]
            changes[begin] += op.nbytes
            changes[end] -= op.nbytes
    return list(accumulate(changes[:-1]))


def place_columns(
    region: CompiledRegion, arranged: Columns, detail: CompiledDetail, odd: set[int]
) -> list[Place]:
    """Return the columns of a picture with their positions, boxes and ribbons.

    Args:
        region: the region.
        arranged: its columns.
        detail: one column for each block, or for each line.
        odd: checkpoints with the second style.
    """
    return _Placement(region, detail, odd).place(arranged)


class _Placement:
    def __init__(self, region: CompiledRegion, detail: CompiledDetail, odd: set[int]) -> None:
        self._region = region
        self._detail = detail
        self._odd = odd
        self._hooks = {hook.slot: hook for hook in region.hooks if hook.inlined}

    def place(self, arranged: Columns) -> list[Place]:
        """Return the columns with their positions."""
        alive = dict(
            zip(
                (op.name for op in self._region.backward_ops),
                recomputed_alive(self._region),
                strict=True,
            )
        )
        ribbons = [self._ribbons(column, arranged.backward_column) for column in arranged.columns]
        largest = max((max(r.before, r.nbytes) for each in ribbons for r in each), default=0)
        places: list[Place] = []
        x = GUTTER
        for column, own in zip(arranged.columns, ribbons, strict=True):
            forward = lane_rows(column.forward, MAX_ROWS[self._detail], None)
            backward = lane_rows(column.backward, MAX_ROWS[self._detail], self._odd)
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
            places.append(Place(column, x, width, forward, backward, own, peak))
            x += width + GAP
        set_ports(places)
        return places

    def _set_thickness(self, ribbons: Sequence[Ribbon], largest: int) -> float:
        """Set thickness and start of the ribbons of a column, and return the width they need."""
        at = need = 0.0
        for ribbon in ribbons:
            ribbon.thick = max(THINNEST, THICKEST * ribbon.nbytes / largest)
            ribbon.thick_before = max(THINNEST, THICKEST * ribbon.before / largest)
            ribbon.start = at + ribbon.room / 2
            at += ribbon.room
            need = max(need, at + text_width(ribbon.label, SMALL) + 14)
        return need

    def _ribbons(self, column: Column, backward_column: dict[str, int]) -> list[Ribbon]:
        """Return the ribbons that start in a column, those that end farthest left first."""
        slots = [self._region.saved[position] for position in column.slots]
        values = sorted((s for s in slots if s.kind == "value"), key=lambda s: -s.nbytes)
        many = self._detail == "blocks" and len(values) > 1
        single = [] if many else values[:MAX_RIBBONS]
        rest = values if many else values[MAX_RIBBONS:]
        groups = [[slot] for slot in single] + [rest]
        groups += [[s for s in slots if s.kind == kind] for kind in ("input", "size")]
        ribbons = [self._ribbon(group, backward_column) for group in groups if group]
        for ribbon in ribbons if column.repeat > 1 else ():
            ribbon.label += " per block"
        return sorted(ribbons, key=lambda ribbon: ribbon.targets[:1])

    def _ribbon(self, slots: list[CompiledSlot], backward_column: dict[str, int]) -> Ribbon:
        needed = Counter(
            backward_column[op.name]
            for slot in slots
            for op in slot.needed_by
            if op.name in backward_column
        )
        hooks = [hook for slot in slots if (hook := self._hook(slot)) is not None]
        nbytes = sum(slot.nbytes for slot in slots)
        change = sum(hook.nbytes_before - hook.nbytes_after for hook in hooks)
        return Ribbon(
            slots=slots,
            kind=slots[0].kind,
            label=slots_label(slots, nbytes, nbytes + change),
            nbytes=nbytes,
            before=nbytes + change,
            targets=[target for target, _ in needed.most_common(1 + MAX_LINKS)],
            hooked=bool(hooks),
        )

    def _hook(self, slot: CompiledSlot) -> CompiledHook | None:
        return self._hooks.get(slot_hook(slot))
