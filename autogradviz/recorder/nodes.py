"""Looking at autograd nodes without disturbing them.

NOTE [ Touching a node ]
From torch 2.13 on, a node whose Python object was made once keeps it, and a chain of some
50,000 such nodes overflows the C stack when the graph is freed. Listing ``next_functions``
makes those objects. So the walk counts the longest chain that it has touched, from above while
it goes and from below afterwards, and stops at ``SAFE_DEPTH``.

NOTE [ Looking at a slot ]
``node._saved_x`` unpacks: it runs hooks, and on a checkpointed region the forward.
``node._raw_saved_x`` is the slot itself; its ``data`` and ``unpack_hook`` run nothing.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.autograd.function import FunctionCtx

from autogradviz.events import NO_ID, NodeSeen, RecorderLimited, TensorUnpacked
from autogradviz.recorder.customs import look_at_context
from autogradviz.recorder.ops import MODE_SENSITIVE
from autogradviz.recorder.tensors import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autogradviz.recorder.recorder import Gate, Recorder

SAFE_DEPTH: Final = 15_000
NO_SEQUENCE: Final = 2**64 - 1  # AccumulateGrad's: it has no place in creation order
_RAW: Final = "_raw_saved_"


class Slot(NamedTuple):
    """One saved tensor of one node."""

    saved_id: int
    attribute: str  # "" for a save that went through hooks
    place: int | None  # in a slot that holds a list
    version: int | None
    saved_hash: int | None


class NodeTag:
    """Our number on a node, kept in its ``metadata``; it dies with the node."""

    __slots__ = (
        "depth",
        "gate",
        "height",
        "hooked_by",
        "mode_sensitive",
        "node_id",
        "saved",
        "seen",
        "walk",
    )

    def __init__(self, node_id: int, gate: Gate) -> None:
        self.node_id = node_id
        self.gate = gate
        self.saved: list[Slot] = []
        self.seen = False
        self.walk = 0
        self.depth = 0  # longest touched chain above, in the current walk
        self.height = 1  # longest touched chain below
        self.mode_sensitive = False  # see NOTE [ Formulas that ask whether a mode is active ]
        self.hooked_by: int | None = None  # the backward that put hooks on it

    def __del__(self) -> None:
        recorder = self.gate.recorder
        if recorder is not None and self.saved:
            recorder.guarded("release", recorder.nodes.release, self)


class NodeTable:
    """Walks graphs, numbers their nodes and reads their slots."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._count = 0
        self._walk = 0
        self._raw_names: dict[type, tuple[str, ...]] = {}
        self._too_deep = False
        self.leaves: dict[int, int] = {}
        """AccumulateGrad nodes, and the tensors that they accumulate into."""

    def tag(self, node: Any) -> NodeTag:
        """Return a node's tag, a new one at the first meeting."""
        gate = self._recorder.gate  # one a recording, so that no other one's tags are ours
        tag = node.metadata.get(gate)
        if tag is None:
            tag = node.metadata[gate] = NodeTag(self._count, gate)
            self._count += 1
        return tag  # type: ignore[no-any-return]

    def untag(self, roots: Iterable[Any]) -> None:
        """Take our tags off the nodes that ``roots`` reach."""
        gate = self._recorder.gate
        stack = list(roots)
        while stack:
            node = stack.pop()
            tag = node.metadata.pop(gate, None)
            if tag is not None and tag.seen:
                stack.extend([child for child, _ in node.next_functions if child is not None])

    def walk(
        self, roots: Iterable[Any], visit: Callable[[Any, NodeTag], None] | None = None
    ) -> None:
        """Look at every node that gradients of ``roots`` reach; each is visited once.

        Nodes come in descending order of creation, which is a topological order, so the depth
        of a node is known when its turn comes.
        """
        self._walk += 1
        heap: list[tuple[int, int, Any, NodeTag]] = []
        trail: list[tuple[NodeTag, list[NodeTag]]] = []
        for root in roots:
            self._push(heap, root, self.tag(root), 1)
        while heap:
            order, _, node, tag = heapq.heappop(heap)
            if self._too_deep or tag.depth > SAFE_DEPTH or -order in self._recorder.saves.wide:
                self._stop_below(tag)
                continue
            following = node.next_functions
            children = [None if child is None else self.tag(child) for child, _ in following]
            if not tag.seen:
                self._look(node, tag, following, children)
            if visit is not None:
                visit(node, tag)
            for (child, _), child_tag in zip(following, children, strict=True):
                if child_tag is not None:
                    self._push(heap, child, child_tag, tag.depth + 1)
            trail.append((tag, [child for child in children if child is not None]))
        for tag, below in reversed(trail):
            tag.height = 1 + max([child.height for child in below], default=0)
            if tag.height > SAFE_DEPTH and not self._too_deep:
                self._stop_below(tag)
                self._too_deep = True

    def _push(self, heap: list[Any], node: Any, tag: NodeTag, depth: int) -> None:
        if tag.walk == self._walk:
            tag.depth = max(tag.depth, depth)
            return
        tag.walk = self._walk
        tag.depth = depth
        number = node._sequence_nr()  # noqa: SLF001 - has no public name
        heapq.heappush(heap, (0 if number == NO_SEQUENCE else -number, tag.node_id, node, tag))

    def _stop_below(self, tag: NodeTag) -> None:
        if not self._recorder.limited:
            self._recorder.limited = True
            message = (
                f"the graph is deeper than {SAFE_DEPTH:,} nodes; what lies below node "
                f"{tag.node_id} was not looked at, because touching more could crash the process "
                "when the graph is freed"
            )
            self._recorder.emit(RecorderLimited, "nodes", message)

    def _look(
        self, node: Any, tag: NodeTag, following: Any, children: list[NodeTag | None]
    ) -> None:
        tag.seen = True
        number = node._sequence_nr()  # noqa: SLF001
        sequence_nr = None if number == NO_SEQUENCE else number
        leaf = getattr(node, "variable", None) if sequence_nr is None else None
        name = node.name().rpartition("::")[2]
        tag.mode_sensitive = name in MODE_SENSITIVE
        tensor_id = None
        if isinstance(leaf, torch.Tensor):
            tensor_id = self.leaves[tag.node_id] = self._recorder.tensors.number(leaf)
            self._recorder.leaves.met(tensor_id, leaf)
        self._recorder.emit(
            NodeSeen,
            tag.node_id,
            name,
            sequence_nr,
            tuple([NO_ID if child is None else child.node_id for child in children]),
            tuple([index for _, index in following]),
            tensor_id,
            stack_id=None if sequence_nr is None else self._recorder.saves.custom.get(sequence_nr),
        )
        for attribute, index, slot in self._slots(node):
            self._look_at_slot(tag, attribute, index, slot, sequence_nr)
        if isinstance(node, FunctionCtx):
            look_at_context(self._recorder, node, tag.node_id)

    def _slots(self, node: Any) -> Iterator[tuple[str, int | None, Any]]:
        kind = type(node)
        names = self._raw_names.get(kind)
        if names is None:
            names = tuple([name for name in dir(kind) if name.startswith(_RAW)])
            self._raw_names[kind] = names
        for name in names:
            try:
                raw = getattr(node, name)
            except RuntimeError:  # the graph was freed
                continue
            if isinstance(raw, (tuple, list)):
                for index, slot in enumerate(raw):
                    yield name, index, slot
            elif raw is not None:
                yield name, None, raw

    def _look_at_slot(
        self, tag: NodeTag, attribute: str, index: int | None, slot: Any, sequence_nr: int | None
    ) -> None:
        saves = self._recorder.saves
        label = attribute.removeprefix(_RAW)
        if label == "tensors":  # a custom Function's
            label = "saved_tensors"
        if index is not None:
            label = f"{label}[{index}]"
        kept = slot.data
        if slot.unpack_hook is not None:
            save = saves.slot_found(kept, tag.node_id, label)
            if save is not None:
                tag.saved.append(Slot(save.saved_id, "", None, save.version, None))
            else:  # packed before the recording, or by hooks put on this one slot
                known = kept if isinstance(kept, torch.Tensor) else None
                saved_id = saves.new(
                    known, packed_by="user", node_id=tag.node_id, sequence_nr=sequence_nr,
                    slot=label,
                )  # fmt: skip
                tag.saved.append(Slot(saved_id, "", None, None, None))
            return
        if not isinstance(kept, torch.Tensor):
            return
        tensor_id = self._recorder.tensors.number(kept)
        version = None
        if sequence_nr is not None:
            version = saves.version_saved(sequence_nr, tensor_id)
        seen = version_of(kept)
        self._recorder.versions.seen((tensor_id,), (seen,))
        if version is None and seen != NO_ID:
            version = seen
        saved_id = saves.new(
            kept, packed_by="pytorch", node_id=tag.node_id, sequence_nr=sequence_nr,
            slot=label, version=version,
            stack_id=None if sequence_nr is None else saves.custom.get(sequence_nr),
        )  # fmt: skip
        saved_hash = None if sequence_nr is None else saves.hash_saved(sequence_nr, tensor_id)
        tag.saved.append(Slot(saved_id, attribute, index, version, saved_hash))

    def read_versions(self, node: Any, tag: NodeTag) -> None:
        """Record what a node is about to unpack, before PyTorch compares the versions itself."""
        for saved_id, attribute, place, version, saved_hash in tag.saved:
            if not attribute:
                continue
            raw = getattr(node, attribute)
            kept = (raw if place is None else raw[place]).data
            if isinstance(kept, torch.Tensor):
                seen = version_of(kept)
                self._recorder.emit(
                    TensorUnpacked, saved_id, tag.node_id, version,
                    None if seen == NO_ID else seen, False, saved_hash,
                    None if saved_hash is None else self._recorder.hash_of(kept),
                )  # fmt: skip

    def release(self, tag: NodeTag) -> None:
        """Record that a node gave its saved tensors up."""
        for slot in tag.saved:
            self._recorder.saves.released(slot.saved_id)
        tag.saved = []


def graph_roots(output: Any) -> list[Any]:
    """Return the nodes behind a tensor, a gradient edge, or lists, tuples and dicts of them.

    A leaf has no node; a view whose base was written in a way that autograd cannot follow has
    none either.
    """
    if isinstance(output, torch.autograd.graph.GradientEdge):
        return [output.node]
    if isinstance(output, torch.Tensor):
        try:
            node = output.grad_fn
        except RuntimeError:
            return []
        return [] if node is None else [node]
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [node for part in output for node in graph_roots(part)]
    return []
