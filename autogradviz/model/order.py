"""The order in which nodes were created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import NodeSeen

if TYPE_CHECKING:
    from autogradviz.log import Log
    from autogradviz.model.link import Links
    from autogradviz.model.types import Edge


def creation_order(log: Log, links: Links, edges: tuple[Edge, ...]) -> dict[int, int]:
    """Return the place of each node, from 0 and without gaps.

    Nodes of one thread stand in the order of their sequence numbers. Threads are merged by the
    ops that created the nodes. AccumulateGrad has no number: it stands just before its first user.
    """
    numbered = _merge_threads(log, links)
    users: dict[int, int] = {}
    for edge in edges:
        place = numbered.get(edge.source)
        if place is not None and place < users.get(edge.target, len(numbered)):
            users[edge.target] = place
    keys = [
        (numbered[event.node_id], 1, event.node_id)
        if event.node_id in numbered
        else (users.get(event.node_id, len(numbered)), 0, event.node_id)
        for event in log.of(NodeSeen)
    ]
    return {node_id: place for place, (_, _, node_id) in enumerate(sorted(keys))}


def _merge_threads(log: Log, links: Links) -> dict[int, int]:
    """Return the place of each node that has a sequence number."""
    nodes = [event for event in log.of(NodeSeen) if event.sequence_nr is not None]
    nodes.sort(key=lambda event: (event.sequence_nr, event.node_id))
    latest: dict[int, int] = {}  # thread -> the last op so far
    keys: list[tuple[int, int, int]] = []
    for event in nodes:
        op_seq = links.op_of_node.get(event.node_id)
        thread = event.thread if op_seq is None else links.thread_of_op[op_seq]
        if op_seq is not None:
            latest[thread] = max(op_seq, latest.get(thread, op_seq))
        assert event.sequence_nr is not None
        keys.append((latest.get(thread, -1), event.sequence_nr, event.node_id))
    return {node_id: place for place, (_, _, node_id) in enumerate(sorted(keys))}
