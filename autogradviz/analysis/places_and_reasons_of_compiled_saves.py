"""The places of the saved values of compiled regions, and the reasons why they are saved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.compiled_graphs.read_graph_text import ITEM, is_view
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion, CompiledSlot
    from autogradviz.analysis.module_names import ModuleNames
    from autogradviz.analysis.types import Node, SourceLocation
    from autogradviz.events import SlotKind


# --- the module and the line that the saved values of compiled regions belong to ------------------
#
# In eager code, a saved value belongs to the op that saved it. A compiled region saves all its
# values in one node, so each of them belongs to the first forward op whose gradient needs it.


class SavedAt(NamedTuple):
    """The module and the line of a saved value, and what eager code would save it for."""

    module: str  # "" if unknown
    location: SourceLocation | None
    order: int  # of the op that needs it among those of the forward
    node: str = ""  # "Addmm", as the node of the op that needs it is named; "" if unknown
    slot: str = ""  # "self"
    made_by: str = ""  # the op that computed it, "gelu"


def places_of_saved(
    regions: Iterable[CompiledRegion], nodes: Mapping[int, Node], names: ModuleNames
) -> dict[tuple[int, int], SavedAt]:
    """Return the places of the saved storages of compiled regions, by node and storage."""
    places: dict[tuple[int, int], SavedAt] = {}
    for region in regions:
        graph = {op.name: op for op in region.forward_ops}
        for slot in region.saved:
            op = _first_op(slot)
            use = _use(graph, slot, op)
            location = slot.location if op is None else op.location
            for run in slot.runs:
                if run.tensor is None or run.tensor.storage_id is None:
                    continue
                node = nodes.get(run.node_id)
                outer = "" if node is None else node.module
                module = (
                    names.find_in_dynamo(op.module, outer)
                    if op is not None and op.module
                    else outer
                )
                key = run.node_id, run.tensor.storage_id
                order = op.position if op else 0
                places.setdefault(key, SavedAt(module, location, order, *use))
    return places


def _use(
    graph: Mapping[str, CompiledOp], slot: CompiledSlot, user: CompiledOp | None
) -> tuple[str, str, str]:
    """Return the node, the slot and the op that made a saved value, as eager code names them.

    Views compute nothing: what they take was computed before, what they return is used after.
    """
    base = _base(graph, slot.name)
    made = graph.get(base)
    while user is not None and is_view(user.target):
        view = user.name
        user = next((op for op in graph.values() if view in op.arguments), None)
    if user is None:
        return "", "", ""
    words = short_op_name(user.target).strip("_").split("_")
    node = "".join(word[:1].upper() + word[1:] for word in words)
    if made is user:
        items = [op.name for op in graph.values() if op.target == ITEM and base in op.arguments]
        item = items.index(slot.name) if slot.name in items else ""
        return node, f"result{item}", ""
    is_first = bool(user.arguments) and _base(graph, user.arguments[0]) == base
    made_by = "" if made is None else short_op_name(made.target)
    return node, "self" if is_first else "other", made_by


def _base(graph: Mapping[str, CompiledOp], name: str) -> str:
    """Return the name of the value that a value is a view of, itself if it is none."""
    while (op := graph.get(name)) is not None and is_view(op.target) and op.arguments:
        name = op.arguments[0]
    return name


def _first_op(slot: CompiledSlot) -> CompiledOp | None:
    """Return the first forward op whose gradient needs a value, else the op that computed it."""
    users = [op.forward_op for op in slot.needed_by if op.forward_op is not None]
    known = [op for op in users if op.location is not None]
    return min(known, key=lambda op: op.position, default=slot.op)


# --- why a compiled region saves a value, and how it could be computed again instead --------------


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


BUDGET: Final = "torch._functorch.config.activation_memory_budget"

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
        remedy += f", or {BUDGET} below 1"
    return remedy


def _at(op: CompiledOp) -> str:
    if op.location is not None:
        place = re.split(r"[/\\]", str(op.location))[-1]
        return f" ({place})"
    return f" ({op.module})" if op.module else ""
