"""Creation order of nodes across threads, from sequence numbers and forward ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import Edge
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_nodes import OpNodeMatches


def creation_order(log: Log, matches: OpNodeMatches, edges: tuple[Edge, ...]) -> dict[int, int]:
    """Return the rank of each node by id, from 0 and without gaps.

    Nodes of one thread are ordered by sequence number. Threads are merged by the ops that created
    the nodes. AccumulateGrad has no sequence number and comes just before its first user.
    """
    nodes = {
        node_id: (number, node_id, thread)
        for number, node_id, thread in log.fields(NodeSeen, "sequence_nr", "node_id", "thread")
    }
    ranks = _rank_numbered(nodes.values(), matches)
    first_users: dict[int, int] = {}
    for edge in edges:
        rank = ranks.get(edge.source)
        if rank is not None and rank < first_users.get(edge.target, len(ranks)):
            first_users[edge.target] = rank
    keys = [
        (ranks[node_id], 1, node_id)
        if node_id in ranks
        else (first_users.get(node_id, len(ranks)), 0, node_id)
        for node_id in nodes
    ]
    return {node_id: rank for rank, (_, _, node_id) in enumerate(sorted(keys))}


def _rank_numbered(
    seen: Iterable[tuple[int | None, int, int]], matches: OpNodeMatches
) -> dict[int, int]:
    """Return the rank of each node that has a sequence number, among those nodes.

    Args:
        seen: sequence number, id and thread of each node.
        matches: the ops that created the nodes.
    """
    numbered = [(number, *rest) for number, *rest in seen if number is not None]
    latest: dict[int, int] = {}  # thread -> the last op so far
    keys: list[tuple[int, int, int]] = []
    for sequence_nr, node_id, walked_on in sorted(numbered):
        op_seq = matches.op_of_node.get(node_id)
        thread = walked_on if op_seq is None else matches.thread_of_op[op_seq]
        if op_seq is not None:
            latest[thread] = max(op_seq, latest.get(thread, op_seq))
        keys.append((latest.get(thread, -1), sequence_nr, node_id))
    return {node_id: rank for rank, (_, _, node_id) in enumerate(sorted(keys))}
