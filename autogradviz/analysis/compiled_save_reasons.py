"""Why a compiled region saves a value, and how it could be computed again instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import short_op_name
from autogradviz.compiled_graphs.graph_text import ITEM

if TYPE_CHECKING:
    from autogradviz.analysis.compiled_region_types import CompiledOp
    from autogradviz.events import SlotKind


def reason_to_save(
    kind: SlotKind,
    op: CompiledOp | None,
    needed_by: tuple[CompiledOp, ...],
    blocking: CompiledOp | None,
    because: str,
    *,
    leaves: bool,
) -> str:
    """Return one sentence: what needs a saved value, and why it is not computed again.

    ``leaves`` tells whether a later checkpointed region uses it.
    """
    if kind == "size":
        return "shapes in the backward depend on it"
    need = _need(needed_by)
    if kind == "input":
        return f"{need}; an input, which cannot be computed again"
    return need + _obstacle(op, blocking, because, leaves=leaves)


def _need(needed_by: tuple[CompiledOp, ...]) -> str:
    if not needed_by:
        return "not used by the backward"
    first, *others = needed_by
    return f"needed by {short_op_name(first.target)}{_at(first)}" + (
        f" and {len(others)} more" if others else ""
    )


def _obstacle(
    op: CompiledOp | None, blocking: CompiledOp | None, because: str, *, leaves: bool
) -> str:
    """Return why a computed value is not computed again, after what needs it."""
    if op is not None and op.policy.startswith("MUST_SAVE"):
        if op.checkpoint is None:
            return "; the result of a checkpointed region"
        if leaves:
            return "; used by a later checkpointed region"
        return f"; your policy says {op.policy}"
    if op is None or blocking is None:
        return ""
    because = because or "it is too far from the backward"
    name = short_op_name(blocking.target)
    if blocking is op or (op.target == ITEM and blocking.name in op.arguments):
        return f"; {name} may not run again: {because}"
    return f"; recomputing it would run {name}{_at(blocking)} again: {because}"


_ALLOWED_BY_BUDGET: Final = frozenset(
    {"not in recomputable allowlist", "materialized in backward", "reduction op"}
)
"""Reasons of the partitioner that it drops if ``activation_memory_budget`` is below 1."""


def remedy_for_save(op: CompiledOp | None, blocking: CompiledOp | None, because: str) -> str:
    """Return a change that makes the backward compute a value again, "" if unknown."""
    if op is None:  # an input, or a size
        return ""
    if op.policy.startswith("MUST_SAVE"):
        if op.checkpoint is None:
            return ""
        return f"let the policy return CheckpointPolicy.PREFER_RECOMPUTE for {op.target}"
    if blocking is None or not because:
        return ""
    ops = (blocking,) if blocking is op else (blocking, op)
    names = dict.fromkeys(f"{short_op_name(each.target)}{_at(each)}" for each in ops)
    remedy = f"torch.utils.checkpoint around {' and '.join(names)}"
    if because in _ALLOWED_BY_BUDGET:
        remedy += ", or torch._functorch.config.activation_memory_budget below 1"
    return remedy


def _at(op: CompiledOp) -> str:
    if op.location is not None:
        place = re.split(r"[/\\]", str(op.location))[-1]
        return f" ({place})"
    return f" ({op.module})" if op.module else ""
