"""Hooks that users registered: where, on which nodes they ran, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.types import Hook
from autogradviz.events import HookRan, HookRegistered, NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import Module, Op
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks


def build_hooks(
    log: Log, ops: Iterable[Op], modules: dict[int, Module], stacks: Stacks
) -> tuple[Hook, ...]:
    """Return all hooks, in the order of their registration or of their first detection."""
    runs: dict[int, list[HookRan]] = {}
    for run in log.of(HookRan):
        runs.setdefault(run.hook_id, []).append(run)
    events = log.of(HookRegistered)
    nodes_of = _nodes_of_tensors(log, ops, {event.tensor_id for event in events})
    hooks = []
    for event in events:
        ran = runs.get(event.hook_id, [])
        node_ids = dict.fromkeys(run.node_id for run in ran if run.node_id is not None)
        if not node_ids:
            created = nodes_of.get(event.tensor_id, [])
            earlier = [node_id for seq, node_id in created if seq < event.seq]
            node_ids = dict.fromkeys(earlier[-1:])
        module = None if event.module_id is None else modules.get(event.module_id)
        hooks.append(
            Hook(
                hook_id=event.hook_id,
                kind=ran[0].hook_kind if ran else event.hook_kind,
                name=event.hook_name,
                tensor_id=event.tensor_id,
                module=module.name if module is not None else "",
                early=event.early,
                location=stacks.location(event.stack_id),
                node_ids=tuple(node_ids),
                runs=len(ran),
                changed=sum(run.changed for run in ran),
                failed=any(run.failed for run in ran),
                duration_ns=sum(run.duration_ns for run in ran),
            )
        )
    return tuple(hooks)


def _nodes_of_tensors(
    log: Log, ops: Iterable[Op], wanted: set[int | None]
) -> dict[int | None, list[tuple[int, int]]]:
    """Return the nodes that create each tensor or accumulate into it, with event numbers."""
    found: dict[int | None, list[tuple[int, int]]] = {}
    if not wanted - {None}:
        return found
    for event in log.of(NodeSeen):
        if event.tensor_id is not None:
            found.setdefault(event.tensor_id, []).append((-1, event.node_id))
    for op in ops:
        if op.node_id is not None:
            for tensor in op.outputs:
                found.setdefault(tensor.tensor_id, []).append((op.seq, op.node_id))
    return found
