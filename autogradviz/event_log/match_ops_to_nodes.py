"""Matching of forward ops to the autograd nodes that they created.

Both have the autograd sequence number, but PyTorch counts it per thread and a node does not know
its thread. If ops of several threads share a number, names decide:
``aten.native_layer_norm.default`` creates ``NativeLayerNormBackward0``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from autogradviz.events import MutationCloned, NodeSeen, OpCalled
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from autogradviz.event_log.log import Log


_Op: TypeAlias = tuple[int, str, int]
"""Event number, overload and thread of an op."""


def custom_functions(log: Log) -> dict[int, str]:
    """Return the class of each node of a custom Function: "Scale" for "ScaleBackward"."""
    nodes = log.fields(NodeSeen, "node_id", "node_name")
    return {node_id: name.removesuffix("Backward") for node_id, name in nodes if _of_function(name)}


def _of_function(node_name: str) -> bool:
    """Return whether a node is of a custom Function: those of PyTorch's ops end with a number."""
    return node_name.endswith("Backward")


@cache
def op_stem(overload: str) -> str:
    """Return the name of an op as far as that of its node has it."""
    return re.sub(r"[_\d]", "", short_op_name(overload)).lower()


@cache
def node_stem(node_name: str) -> str:
    """Return the name of a node as far as that of its op has it."""
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
    by_number: dict[int, list[_Op]] = {}
    op_of_number: dict[tuple[int, int], int] = {}
    thread_of_op: dict[int, int] = {}
    clones = {event.op_seq for event in log.of(MutationCloned)}
    # A mutation clone takes the number of the write that follows it on the thread.
    number_of_clone: dict[int, int | None] = {}
    ops = log.fields(OpCalled, "seq", "op", "thread", "written", "sequence_nr")
    for seq, op, thread, written, own_number in ops:
        if seq in clones:
            number_of_clone[thread] = own_number
            continue
        number = own_number
        if number is None and written:
            number = number_of_clone.pop(thread, None)
        if number is not None:
            by_number.setdefault(number, []).append((seq, op, thread))
            op_of_number.setdefault((thread, number), seq)
            thread_of_op[seq] = thread
    op_of_node: dict[int, int] = {}
    node_of_op: dict[int, int] = {}
    for node_id, name, thread, number in log.fields(
        NodeSeen, "node_id", "node_name", "thread", "sequence_nr"
    ):
        if number is None:
            continue
        candidates = by_number.get(_op_number(name, number), [])
        creator = _creator(name, thread, candidates, node_of_op)
        if creator is not None:
            op_of_node[node_id] = creator
            node_of_op[creator] = node_id
    return OpNodeMatches(op_of_node, node_of_op, op_of_number, thread_of_op)


def _op_number(node_name: str, sequence_nr: int) -> int:
    """Return the sequence number of the op that created a node.

    A write to a view creates two nodes: the op's own, which stays inside the second one, the
    ``CopySlices`` of the base.
    """
    return sequence_nr - 1 if node_name == "CopySlices" else sequence_nr


def _creator(
    node_name: str, node_thread: int, candidates: list[_Op], taken: dict[int, int]
) -> int | None:
    """Return the best match for a node; None if only an unrelated op shares its number."""
    best, best_score = None, (False, False)
    stem = node_stem(node_name)
    of_function = _of_function(node_name)
    for seq, op, thread in candidates:
        if of_function and thread != node_thread and op.startswith("aten."):
            continue  # the number is that of a node on another thread
        score = (op_stem(op) == stem, thread == node_thread)
        if seq not in taken and score > best_score:
            best, best_score = seq, score
    return best
