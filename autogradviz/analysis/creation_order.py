"""The order in which nodes were created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.match_ops_nodes import Links
    from autogradviz.analysis.types import Edge
    from autogradviz.event_log import Log


def creation_order(log: Log, links: Links, edges: tuple[Edge, ...]) -> dict[int, int]:
    """Return the place of each node, from 0 and without gaps.

    Nodes of one thread stand in the order of their sequence numbers. Threads are merged by the
    ops that created the nodes. AccumulateGrad has no number: it stands just before its first user.
    """
    nodes = {event.node_id: event for event in log.of(NodeSeen)}
    numbered = _merge_threads(nodes.values(), links)
    users: dict[int, int] = {}
    for edge in edges:
        place = numbered.get(edge.source)
        if place is not None and place < users.get(edge.target, len(numbered)):
            users[edge.target] = place
    keys = [
        (numbered[node_id], 1, node_id)
        if node_id in numbered
        else (users.get(node_id, len(numbered)), 0, node_id)
        for node_id in nodes
    ]
    return {node_id: place for place, (_, _, node_id) in enumerate(sorted(keys))}


def _merge_threads(seen: Iterable[NodeSeen], links: Links) -> dict[int, int]:
    """Return the place of each node that has a sequence number."""
    numbers = [(n.sequence_nr, n.node_id, n.thread) for n in seen if n.sequence_nr is not None]
    latest: dict[int, int] = {}  # thread -> the last op so far
    keys: list[tuple[int, int, int]] = []
    for sequence_nr, node_id, looked_on in sorted(numbers):
        op_seq = links.op_of_node.get(node_id)
        thread = looked_on if op_seq is None else links.thread_of_op[op_seq]
        if op_seq is not None:
            latest[thread] = max(op_seq, latest.get(thread, op_seq))
        keys.append((latest.get(thread, -1), sequence_nr, node_id))
    return {node_id: place for place, (_, _, node_id) in enumerate(sorted(keys))}
