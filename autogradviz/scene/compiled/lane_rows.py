"""Boxes of a lane of a compiled region: ops with one name, views, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_shape,
    plural,
    short_op_name,
    source_line,
)
from autogradviz.compiled_graphs.graph_text import is_view
from autogradviz.scene.text import text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.compiled_region_types import CompiledOp

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
