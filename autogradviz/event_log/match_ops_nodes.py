"""Matching of forward ops to the autograd nodes that they created.

Both have the autograd sequence number, but PyTorch counts it per thread and a node does not know
its thread. If ops of several threads share a number, names decide:
``aten.native_layer_norm.default`` creates ``NativeLayerNormBackward0``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from autogradviz.event_log.named_tuple_rows import rows_of
from autogradviz.events import MutationCloned, NodeSeen, OpCalled

if TYPE_CHECKING:
    from autogradviz.event_log.log import Log


@cache
def _op_stem(overload: str) -> str:
    parts = overload.split(".")
    return re.sub(r"[_\d]", "", parts[1] if len(parts) > 1 else overload).lower()


@cache
def _node_stem(node_name: str) -> str:
    return re.sub(r"[_\d]", "", re.sub(r"Backwards?\d*$", "", node_name)).lower()


@dataclass(frozen=True, slots=True)
class OpNodeMatches:
    """Pairs of ops and nodes. An op is identified by its ``seq``."""

    op_of_node: dict[int, int]
    node_of_op: dict[int, int]
    op_of_number: dict[tuple[int, int], int]  # (thread, sequence number) -> the first such op
    thread_of_op: dict[int, int]

    def op_of_save(self, node_id: int | None, thread: int, sequence_nr: int | None) -> int | None:
        """Return the op that saved a tensor: the node's, else by sequence number on the thread."""
        if node_id in self.op_of_node:
            return self.op_of_node[node_id]
        if sequence_nr is None:
            return None
        return self.op_of_number.get((thread, sequence_nr))


def match_ops_to_nodes(log: Log) -> OpNodeMatches:
    """Match all ops to the nodes that they created."""
    by_number: dict[int, list[OpCalled]] = {}
    op_of_number: dict[tuple[int, int], int] = {}
    thread_of_op: dict[int, int] = {}
    clones = {event.op_seq for event in log.of(MutationCloned)}
    # A mutation clone takes the number of the write that follows it on the thread.
    number_of_clone: dict[int, int | None] = {}
    for op in rows_of(log, OpCalled):
        number = op.sequence_nr
        if op.seq in clones:
            number_of_clone[op.thread] = number
            continue
        if number is None and op.written:
            number = number_of_clone.pop(op.thread, None)
        if number is not None:
            by_number.setdefault(number, []).append(op)
            op_of_number.setdefault((op.thread, number), op.seq)
            thread_of_op[op.seq] = op.thread
    op_of_node: dict[int, int] = {}
    node_of_op: dict[int, int] = {}
    for node in log.of(NodeSeen):
        if node.sequence_nr is None:
            continue
        creator = _creator(node, by_number.get(_op_number(node, node.sequence_nr), []), node_of_op)
        if creator is not None:
            op_of_node[node.node_id] = creator
            node_of_op[creator] = node.node_id
    return OpNodeMatches(op_of_node, node_of_op, op_of_number, thread_of_op)


def _op_number(node: NodeSeen, sequence_nr: int) -> int:
    """Return the sequence number of the op that created a node.

    A write to a view creates two nodes: the op's own, which stays inside the second one, the
    ``CopySlices`` of the base.
    """
    return sequence_nr - 1 if node.node_name == "CopySlices" else sequence_nr


def _creator(node: NodeSeen, candidates: list[OpCalled], taken: dict[int, int]) -> int | None:
    """Return the best match for a node; None if only an unrelated op shares its number."""
    best, best_score = None, (False, False)
    stem = _node_stem(node.node_name)
    for op in candidates:
        score = (_op_stem(op.op) == stem, op.thread == node.thread)
        if op.seq not in taken and score > best_score:
            best, best_score = op.seq, score
    return best
