"""Ribbons of saved values: what they hold, where they end, and the lines that they follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.compiled_graphs.graph_text import ITEM
from autogradviz.scene.compiled.source_line_columns import slot_hook
from autogradviz.scene.text import elide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.compiled_region_types import CompiledSlot
    from autogradviz.scene.compiled.lane_rows import LaneRow
    from autogradviz.scene.compiled.source_line_columns import Column

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
