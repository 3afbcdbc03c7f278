"""Walks over the autograd graph: each node is read once.

NOTE [ Touching a node ]
From torch 2.13 on, a node whose Python object was created once keeps it, and a chain of some 50,000
such nodes overflows the C stack when the graph is freed. Reading ``next_functions`` creates those
objects. So the walk tracks the longest chain that it has touched, from above while it goes and from
below afterwards, and stops at ``SAFE_DEPTH``.

NOTE [ node_creation_hook ]
torch 2.14 calls the hooks of ``torch.autograd.graph.node_creation_hook`` with each new node, when
its slots and edges are complete. Tried with 2.14.1 in place of the walk, and not used:

* Any hook, also an empty one, creates the Python object of every node. A chain of 60,000 additions
  then crashes when its graph is freed, and of 40,000 does not, the same as after a walk. A walk
  can stop at a depth; a hook comes before the depth is known to matter.
* It costs more. In one run, above a plain ``y * 2`` with a gradient (7 µs of CPU time), a hook that
  reads number, name, slots and next nodes took 5.8 µs for each node, and the same by a walk 3.5 µs.
  It also runs for nodes that no backward reaches, and for those of AOTAutograd's tracing.
* It is not called on threads that the program starts, nor again for an ``AccumulateGrad`` that
  still exists; recomputations call it only if backward runs inside the context. On threads of
  the engine it is called.
* What it raises leaves the user's op, so it would have to catch everything. Creating a node in it
  raises RuntimeError; ops without gradients work.
"""

from __future__ import annotations

import itertools
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.autograd.function import FunctionCtx

from autogradviz.events import NO_ID, NodeSeen, RecorderLimited
from autogradviz.recorder.python_engine.node_metadata_entry import NodeTag
from autogradviz.recorder.torch_internals.nodes import Slots, slots_of
from autogradviz.recorder.torch_internals.nodes_sensitive_to_mode import MODE_SENSITIVE, Condition
from autogradviz.recorder.torch_internals.private_api import AccumulateGrad
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.recorder.backward.custom_function_calls import CustomFunctionTable
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.python_engine.node_metadata_entry import OnStart
    from autogradviz.recorder.python_engine.ops_that_created_nodes import CreatorTable
    from autogradviz.recorder.python_engine.saved_tensors import SlotTable
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.session import Session, SessionRef

SAFE_DEPTH: Final = 15_000
_NONE: Final[tuple[int, ...]] = ()
NO_SEQUENCE: Final = 2**64 - 1  # of AccumulateGrad, which has no place in creation order
_Tensor: Final = torch.Tensor
_AccumulateGrad: Final = AccumulateGrad


class _Kind(NamedTuple):
    """The properties of all nodes of one type."""

    shared: bool  # also the type of C++ nodes without a Python type of their own
    full: str  # "torch::autograd::AccumulateGrad"
    name: str  # "AccumulateGrad"
    sensitive: Condition | None  # decides whether the mode is suspended while a node runs
    slots: Slots
    custom: bool  # a custom Function, in Python


def _kind_of(node: Any) -> _Kind:
    full, kind = node.name(), type(node)
    name = full.rpartition("::")[2]
    custom = issubclass(kind, FunctionCtx)
    shared = kind.__name__ != name
    return _Kind(shared, full, name, MODE_SENSITIVE.get(name), slots_of(kind), custom)


class NodeTable:
    """Walks graphs and assigns ids to their nodes."""

    def __init__(
        self,
        session: Session,
        tensors: TensorTable,
        leaves: LeafTable,
        creators: CreatorTable,
        slots: SlotTable,
        functions: CustomFunctionTable,
        on_start: SessionRef[OnStart],
    ) -> None:
        self._session = session
        self._intern = tensors.intern
        self._add_leaf = leaves.add
        self._creators = creators
        self._slots = slots
        self._functions = functions
        self._key = on_start  # one a recording, so that tags of other recordings are not found
        self._next_id = itertools.count().__next__
        self._walk = 0
        self._emit_seen = session.emitter(NodeSeen)
        self._kinds: dict[type, _Kind] = {}
        self._too_deep = False
        self._limited = False
        self.oldest = 0
        """Nodes whose description is older than this event are described again."""

    def tag(self, node: Any) -> NodeTag:
        """Return a node's tag, a new one if it has none."""
        key = self._key
        metadata = node.metadata
        tag = metadata.get(key)
        if tag is None:
            tag = metadata[key] = NodeTag(self._next_id(), key)
        return tag  # type: ignore[no-any-return]

    def id_of(self, node: Any) -> int:
        """Return a node's id."""
        return self.tag(node).node_id

    def is_new(self, node: Any) -> bool:
        """Return whether no walk has reached a node yet."""
        tag = node.metadata.get(self._key)
        return tag is None or tag.seen < 0

    def untag(self, roots: Iterable[Any]) -> None:
        """Remove the tags of the nodes that ``roots`` reach."""
        key = self._key
        stack = list(roots)
        while stack:
            node = stack.pop()
            tag = node.metadata.pop(key, None)
            if tag is not None and tag.seen >= 0:
                stack.extend([child for child, _ in node.next_functions if child is not None])

    def record(self, roots: Iterable[Any]) -> None:
        """Record every node that gradients of ``roots`` reach, once."""
        self.walk(roots)

    def walk(self, roots: Iterable[Any]) -> list[tuple[Any, NodeTag]]:
        """Read every node that gradients of ``roots`` reach, once; return them with their tags.

        Nodes come in descending order of creation, which is a topological order, and leaves come
        last, so the depth of a node is known when its turn comes. Its height above the touched
        nodes below it matters only if many were touched.
        """
        self._walk += 1
        deepest = 0 if self._too_deep else SAFE_DEPTH
        wide = self._creators.wide
        thread = self._session.threads.local.state.number
        heap: list[tuple[int, int, Any, NodeTag]] = []
        leaves: deque[tuple[Any, NodeTag]] = deque()  # apart, so that the heap stays small
        # A list of its own for the ids of next nodes: tuples in a list of lists would keep the
        # garbage collector busy.
        trail: list[tuple[Any, NodeTag]] = []
        below: list[tuple[int, ...]] = []
        heights: dict[int, int] = {NO_ID: 0}
        self._follow(heap, leaves, [(root, 0) for root in roots], 1)
        while heap or leaves:
            if heap:
                order, _, node, tag = heappop(heap)
                sequence_nr = -order
            else:
                node, tag = leaves.popleft()
                sequence_nr = None
            if tag.depth > deepest or (wide and sequence_nr in wide):
                self._stop_below(tag)
                heights[tag.node_id] = tag.height
                continue
            if sequence_nr is None and type(node) is _AccumulateGrad:
                next_ids = next_inputs = _NONE
            else:
                following = node.next_functions
                next_ids, next_inputs = self._follow(heap, leaves, following, tag.depth + 1)
            if tag.seen < self.oldest:
                self._read(node, tag, sequence_nr, next_ids, next_inputs, thread)
            trail.append((node, tag))
            below.append(next_ids)
        if len(trail) < SAFE_DEPTH and len(heights) == 1:
            return trail
        for (_, tag), next_ids in zip(reversed(trail), reversed(below), strict=True):
            height = max([heights.get(child, 1) for child in next_ids], default=0)
            tag.height = heights[tag.node_id] = height + 1
            if height >= SAFE_DEPTH and not self._too_deep:
                self._stop_below(tag)
                self._too_deep = True
        return trail

    def _follow(
        self, heap: list[Any], leaves: deque[Any], following: Any, depth: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Queue a node's next nodes, which are at a depth.

        Returns:
            Their ids, and the input of each that the gradient feeds.
        """
        key, walk = self._key, self._walk
        ids, inputs = [], []
        for child, place in following:
            inputs.append(place)
            if child is None:
                ids.append(NO_ID)
                continue
            metadata = child.metadata
            tag = metadata.get(key)
            if tag is None:
                tag = metadata[key] = NodeTag(self._next_id(), key)
            node_id = tag.node_id
            ids.append(node_id)
            if tag.walk == walk:
                tag.depth = max(tag.depth, depth)
                continue
            tag.walk, tag.depth = walk, depth
            number = child._sequence_nr()  # noqa: SLF001 - has no public name
            if number == NO_SEQUENCE:
                leaves.append((child, tag))
            else:
                heappush(heap, (-number, node_id, child, tag))
        return tuple(ids), tuple(inputs)

    def _stop_below(self, tag: NodeTag) -> None:
        if not self._limited:
            self._limited = True
            message = (
                f"the graph is deeper than {SAFE_DEPTH:,} nodes; the nodes below node "
                f"{tag.node_id} are not recorded, because reading more could crash the process "
                "when the graph is freed"
            )
            self._session.emit(RecorderLimited, "nodes", message)

    def _read(
        self,
        node: Any,
        tag: NodeTag,
        sequence_nr: int | None,
        next_ids: tuple[int, ...],
        next_inputs: tuple[int, ...],
        thread: int,
    ) -> None:
        kind = type(node)
        known = self._kinds.get(kind)
        if known is None or (known[0] and known[1] != node.name()):
            known = self._kinds[kind] = _kind_of(node)
        _, _, name, sensitive, slots, custom = known
        creators = self._creators
        if sensitive is not None:
            tag.mode_sensitive = sensitive(node, creators.op_names)
        leaf_id = stack_id = None
        if sequence_nr is None:
            leaf: Any = getattr(node, "variable", None)
            if type(leaf) in PLAIN_TENSORS or isinstance(leaf, _Tensor):
                leaf_id = tag.leaf = self._intern(leaf)
                self._add_leaf(leaf_id, leaf)
        else:
            stack_id = creators.custom.get(sequence_nr) if creators.custom else None
        was_seen = tag.seen >= 0
        tag.seen = self._emit_seen(
            thread, stack_id, tag.node_id, name, sequence_nr, next_ids, next_inputs, leaf_id
        )
        if was_seen:
            return
        if slots:
            saved = self._slots.read(node, tag.node_id, slots, sequence_nr, thread, stack_id)
            if saved is not None:
                tag.saved = saved
                tag.release = self._slots.released_when_freed(saved)
        if custom:
            self._functions.read_context(node, tag.node_id)
