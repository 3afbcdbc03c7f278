"""Which forward op created which autograd node.

Both carry the autograd sequence number, but PyTorch counts it on each thread anew, and a node
does not tell its thread. Where ops of several threads share a number, names decide:
``aten.native_layer_norm.default`` made ``NativeLayerNormBackward0``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from autogradviz.analysis.fast_rows import rows_of
from autogradviz.events import MutationCloned, NodeSeen, OpCalled

if TYPE_CHECKING:
    from autogradviz.event_log import Log


@cache
def short_op_name(overload: str) -> str:
    """Return the middle of an operator's name: "add_" of "aten.add_.Tensor"."""
    parts = overload.split(".")
    return parts[1] if len(parts) > 1 else overload


@cache
def _op_stem(overload: str) -> str:
    return re.sub(r"[_\d]", "", short_op_name(overload)).lower()


@cache
def _node_stem(node_name: str) -> str:
    return re.sub(r"[_\d]", "", re.sub(r"Backwards?\d*$", "", node_name)).lower()


@dataclass(frozen=True, slots=True)
class Links:
    """Ops and nodes, matched; an op is named by its ``seq``."""

    op_of_node: dict[int, int]
    node_of_op: dict[int, int]
    op_of_number: dict[tuple[int, int], int]  # (thread, sequence number) -> the first such op
    thread_of_op: dict[int, int]

    def op_of_save(self, node_id: int | None, thread: int, sequence_nr: int | None) -> int | None:
        """Return the op that saved: that of the node, else that of the number on the thread."""
        if node_id in self.op_of_node:
            return self.op_of_node[node_id]
        if sequence_nr is None:
            return None
        return self.op_of_number.get((thread, sequence_nr))


def link_ops(log: Log) -> Links:
    """Match all ops with the nodes that they created."""
    by_number: dict[int, list[OpCalled]] = {}
    op_of_number: dict[tuple[int, int], int] = {}
    thread_of_op: dict[int, int] = {}
    clones = {event.op_seq for event in log.of(MutationCloned)}
    lent: dict[int, int | None] = {}  # by thread: the number of a write that its clone came before
    for op in rows_of(log, OpCalled):
        number = op.sequence_nr
        if op.seq in clones:
            lent[op.thread] = number
            continue
        if number is None and op.written:
            number = lent.pop(op.thread, None)
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
    return Links(op_of_node, node_of_op, op_of_number, thread_of_op)


def _op_number(node: NodeSeen, sequence_nr: int) -> int:
    """Return the number that the op which created a node was given.

    Writing into a view creates two nodes: the op's own, which stays hidden inside the second,
    the ``CopySlices`` that the base gets.
    """
    return sequence_nr - 1 if node.node_name == "CopySlices" else sequence_nr


def _creator(node: NodeSeen, candidates: list[OpCalled], taken: dict[int, int]) -> int | None:
    """Return the op that fits a node best, unless another thread's op merely shares its number."""
    best, best_score = None, (False, False)
    stem = _node_stem(node.node_name)
    for op in candidates:
        score = (_op_stem(op.op) == stem, op.thread == node.thread)
        if op.seq not in taken and score > best_score:
            best, best_score = op.seq, score
    return best
