"""The columns of a compiled region: its source lines, with the ops of each lane."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_shape,
    plural,
    source_line,
)
from autogradviz.compiled_graphs.read_graph_text import is_packed, is_view
from autogradviz.scene.label_text_and_width import block_prefix, text_width
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion, CompiledSlot
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.scene.schema import CompiledDetail


# --- columns of a compiled region: its ops by user line, folded by module where there are many ----
#
# A column stands for one line of the user's code in one numbered module ("h.3"). Its forward ops
# are drawn above and the backward ops that belong to them below. Consecutive modules with equal
# columns are folded into one ("h.0–11, 12 identical").


MAX_BLOCKS: Final = 16
"""Maximum number of columns of a picture by blocks. More are merged with their neighbors."""

MAX_LINES: Final = 96

_Key: TypeAlias = tuple[str, str, int]  # block, file, line


@dataclass(slots=True)
class Column:
    """One column: ops of the forward, and ops of the backward that belong to them."""

    block: str  # "h.0", "" outside of numbered modules
    last_block: str  # of a run of identical blocks, else the same
    repeat: int  # number of identical blocks
    location: SourceLocation | None  # the first line
    lines: int  # number of lines
    module_type: str = ""  # of the block
    forward: list[CompiledOp] = field(default_factory=list)
    backward: list[CompiledOp] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)  # positions of the saved values that start here

    @property
    def checkpoint(self) -> int | None:
        """Number of the checkpointed region that all its forward ops belong to, else None."""
        found = {op.checkpoint for op in self.forward}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of one picture, and the positions of ops and slots.

    Attributes:
        columns: from left to right.
        backward_column: column of each backward op, by its name; an op that is folded away has
            the column of its identical twin.
    """

    columns: list[Column]
    backward_column: dict[str, int]


def arrange_columns(
    region: CompiledRegion, detail: CompiledDetail, most_blocks: int = MAX_BLOCKS
) -> Columns:
    """Return the columns of a region.

    Args:
        region: the region.
        detail: "lines" for one column for each line, "blocks" for one for each numbered module.
        most_blocks: maximum number of columns by blocks. If there are more, lines outside of
            blocks are merged first.
    """
    lines = _by_line(region)
    groups: list[list[Column]] = []
    for block, same_block in groupby(lines, key=lambda column: column.block):
        members = list(same_block)
        groups += [members] if block else [[each] for each in members]
    signatures = [_signature(region, at, group) for at, group in enumerate(groups)]
    runs = [
        [groups[at] for at in run]
        for _, run in groupby(range(len(groups)), key=signatures.__getitem__)
    ]
    if detail == "blocks":
        runs = [[[_join(group)] for group in run] for run in runs]
    drawn: list[list[Column]] = []  # each with its folded twins
    for run in runs:
        for twins in zip(*run, strict=True):
            last = twins[-1].block
            drawn.append([replace(twins[0], last_block=last, repeat=len(run)), *twins])
    columns = [twins[0] for twins in drawn]
    place = {
        op.name: at for at, twins in enumerate(drawn) for twin in twins for op in twin.backward
    }
    if detail == "lines":
        return _limit(columns, place, MAX_LINES)
    if len(columns) > most_blocks:
        columns, place = _merge(
            columns, place, [at if column.block else -1 for at, column in enumerate(columns)]
        )
    return _limit(columns, place, most_blocks)


def _by_line(region: CompiledRegion) -> list[Column]:
    """Return one column for each block and line, in the order of the forward."""
    columns: dict[_Key, Column] = {}
    forward_key: dict[str, _Key] = {}
    backward_key: dict[str, _Key] = {}

    def add(op: CompiledOp, last: _Key | None) -> _Key:
        key = _key(op) if op.location is not None or last is None else last
        if key not in columns:
            columns[key] = Column(key[0], key[0], 1, op.location, 1)
        return key

    key: _Key | None = None
    hidden = _hook_ops(region)
    for op in region.forward_ops:
        if op.name in hidden:
            continue
        key = forward_key[op.name] = add(op, key)
        column = columns[key]
        column.forward.append(op)
        if op.module == column.block and column.block:
            column.module_type = op.module_type
    for op in region.backward_ops:
        if op.name in hidden:
            continue
        known = forward_key.get(op.forward_op.name) if op.forward_op else None
        if known is None:
            # Sums of gradients have the line of a neighbor: they belong to what they add.
            made = [backward_key[name] for name in op.arguments if name in backward_key]
            own = op.location is not None and _key(op) in columns and not op.sums_gradients
            known = made[-1] if made and not own else add(op, key)
        key = backward_key[op.name] = known
        columns[known].backward.append(op)
    _place_slots(region, columns, forward_key, backward_key)
    return list(columns.values())


def _place_slots(
    region: CompiledRegion,
    columns: dict[_Key, Column],
    forward_key: dict[str, _Key],
    backward_key: dict[str, _Key],
) -> None:
    """Add each saved value to the column in which it starts."""
    for slot in region.saved:
        start = forward_key.get(slot.op.name) if slot.op is not None else None
        start = start or _first_user(slot, backward_key)
        if start is not None:
            columns[start].slots.append(slot.position)


def _hook_ops(region: CompiledRegion) -> set[str]:
    """Return the names of the ops of inlined hooks, which are drawn as hooks.

    The pack hook of "addmm" ends in an op "addmm_hook_0"; the unpack hook begins with its users.
    """
    if not region.hooks:
        return set()
    ops = {op.name: op for op in region.forward_ops}
    found = {op.name for op in region.forward_ops if is_packed(op.name)}
    for op in reversed(region.forward_ops):
        if op.name in found:
            found.update(n for n in op.arguments if n in ops and ops[n].location is None)
    for op in region.backward_ops:
        unknown = op.location is None and op.forward_op is None
        if unknown and op.arguments and found.issuperset(op.arguments):
            found.add(op.name)
    return found


def slot_hook(slot: CompiledSlot) -> str:
    """Return the name of the value that the hooks of a slot take."""
    return slot.op.name if slot.op is not None and is_packed(slot.name) else slot.name


def saved_texts(region: CompiledRegion) -> list[str]:
    """Return the saved bytes; apart from each other those computed, and inputs, alive anyway."""
    computed = region.computed_nbytes
    inputs = region.saved_nbytes - computed
    if not (inputs and computed):
        return [format_bytes(region.saved_nbytes)]
    return [format_bytes(computed), f"+ {format_bytes(inputs)} inputs"]


def _key(op: CompiledOp) -> _Key:
    block = block_prefix(op.module)
    numbered = block.rpartition(".")[2].isdigit()
    location = op.location
    return (
        block if numbered else "",
        location.filename if location else "",
        location.lineno if location else 0,
    )


def _first_user(slot: CompiledSlot, backward_key: dict[str, _Key]) -> _Key | None:
    """Return the column of an input: its line, in the block of the op that needs it."""
    users = [backward_key[op.name] for op in slot.needed_by if op.name in backward_key]
    line = slot.location.lineno if slot.location else 0
    return next((key for key in reversed(users) if key[2] == line), users[-1] if users else None)


def _signature(region: CompiledRegion, at: int, group: Sequence[Column]) -> object:
    """Return a value that is equal for identical blocks only.

    Args:
        region: the region.
        at: position of the group; a line outside of blocks is equal to no other.
        group: the columns of one block, or a single line.
    """
    parts: list[object] = ["" if group[0].block else at]
    for column in group:
        where = column.location and (column.location.filename, column.location.lineno)
        saved = tuple((region.saved[slot].kind, region.saved[slot].nbytes) for slot in column.slots)
        parts.append((where, _ops(column.forward), _ops(column.backward), saved))
    return parts


def _ops(ops: Iterable[CompiledOp]) -> object:
    return tuple((op.target, op.nbytes, op.cause) for op in ops)


def _join(group: Sequence[Column]) -> Column:
    """Return one column for several."""
    first = group[0]
    if len(group) == 1:
        return first
    return Column(
        block=first.block,
        last_block=group[-1].last_block,
        repeat=1,
        location=first.location,
        lines=sum(column.lines for column in group),
        module_type=next((column.module_type for column in group if column.module_type), ""),
        forward=[op for column in group for op in column.forward],
        backward=[op for column in group for op in column.backward],
        slots=[slot for column in group for slot in column.slots],
    )


def _limit(columns: list[Column], place: dict[str, int], limit: int) -> Columns:
    """Merge neighbors until at most ``limit`` columns are left."""
    size = -(-len(columns) // limit)
    if size > 1:
        columns, place = _merge(columns, place, [at // size for at in range(len(columns))])
    return Columns(columns=columns, backward_column=place)


def _merge(
    columns: list[Column], place: dict[str, int], keys: Sequence[int]
) -> tuple[list[Column], dict[str, int]]:
    """Join neighbors with the same key."""
    runs = [list(run) for _, run in groupby(range(len(columns)), key=keys.__getitem__)]
    run_of = {at: number for number, run in enumerate(runs) for at in run}
    joined = [_join([columns[at] for at in run]) for run in runs]
    return joined, {name: run_of[at] for name, at in place.items()}


# --- boxes of a lane of a compiled region: ops with one name, views, and what is left out ---------


OP_SIZE: Final = 11.0
MAX_ITEM_LINES: Final = 16


@dataclass(slots=True)
class LaneRow:
    """One box of a lane, or one line of text instead of views or of what is left out."""

    label: str
    style: str
    ops: list[CompiledOp]

    @property
    def width(self) -> float:
        """Width of the label."""
        return text_width(self.label, OP_SIZE, bold=self.style == "backward")


def lane_rows(ops: Sequence[CompiledOp], limit: int, odd: set[int] | None) -> list[LaneRow]:
    """Return the boxes of one lane of a column: recomputed ops first, views folded.

    Args:
        ops: the ops of the lane.
        limit: maximum number of boxes of each kind.
        odd: checkpoints with the second style; None in the forward.
    """
    rows: dict[tuple[str, str], LaneRow] = {}
    views: dict[str, LaneRow] = {}
    for op in ops:
        style = "forward" if odd is None else _style(op, odd)
        if is_view(op.target):
            note = "note recomputed" if op.cause else "note"
            views.setdefault(note, LaneRow("", note, [])).ops.append(op)
        else:
            label = display_op_name(short_op_name(op.target)).removesuffix("_data")
            rows.setdefault((label, style), LaneRow(label, style, [])).ops.append(op)
    recomputed: list[LaneRow] = []
    others: list[LaneRow] = []
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


def _shorten(rows: list[LaneRow], limit: int) -> list[LaneRow]:
    """Return at most ``limit`` rows: the last one stands for the rest."""
    if len(rows) <= limit:
        return rows
    rest = [op for row in rows[limit - 1 :] for op in row.ops]
    return [*rows[: limit - 1], LaneRow(f"{len(rest):,} more", "note", rest)]


def _style(op: CompiledOp, odd: set[int]) -> str:
    if op.cause is None:
        return "backward"
    if op.cause == "partitioner":
        return "partitioner"
    return "recomputed odd" if op.checkpoint in odd else "recomputed"


def op_lines(ops: Sequence[CompiledOp]) -> list[str]:
    """Return a line for each op: name, shape, bytes, module, and why it is computed again."""
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


def spot(ops: Sequence[CompiledOp]) -> tuple[str, int]:
    """Return file and line of the first op."""
    return source_line(ops[0].location)[:2]
