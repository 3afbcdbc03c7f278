"""Nodes of the scene: boxes with sizes, tooltips and badges, and the kinds of saved tensors."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_shape,
    location_in_folder,
    plural,
    source_line,
)
from autogradviz.analysis.idle_time import node_time
from autogradviz.analysis.saved_tensors import fill_one_slot
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    ContextTensorKept,
    FunctionMarked,
    HooksEntered,
    HooksLeft,
    NotFiniteSeen,
    TensorMoved,
    TensorSaved,
    VersionBumped,
)
from autogradviz.scene.label_text_and_width import (
    BADGE_FONT_SIZE,
    MAX_NAME,
    elide,
    hook_description,
    same_name,
    saved_tensor_label,
    tensor_shape_text,
    text_width,
)
from autogradviz.scene.parameter_badges import ParameterBadges
from autogradviz.scene.schema import SavedTensorBadge, SceneNode, SceneSavedKind
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.places_and_reasons_of_compiled_saves import SavedAt
    from autogradviz.analysis.types import Hook, Node, Op, Region, SavedTensor
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.call_tree import CallTree
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.layout.group_sizes_and_main_column import NodePlace
    from autogradviz.scene.schema import ParameterBadge, SavedTensorState


_make_node = maker(SceneNode)

BOX_TO_BADGE: Final = 9.0
"""Distance between a box and its first badge."""

BADGE_GAP: Final = 5.0
MORE_WIDTH: Final = 62.0  # of "+2 saved" after the last badge
COMPACT_WIDTH: Final = 18.0
COLUMN_OP_WIDTH: Final = 84.0
COLUMN_NAME_WIDTH: Final = 180.0
"""Minimum widths of boxes that are alone in their row, which form a column of equal boxes."""


class NodeBuilder:
    """Builds the nodes of a scene, their parameter badges and their saved-tensor badges."""

    def __init__(
        self,
        analysis: Analysis,
        folded: FoldedGraph,
        findings: Sequence[Finding],
        victims: set[int],
        blamed: frozenset[int],
        tree: CallTree,
    ) -> None:
        """Take analysis, drawn graph, findings, victims, ids of wrong saved tensors, calls."""
        self._tree = tree
        self._analysis = analysis
        self._title = analysis.module_title
        self.nodes: list[SceneNode] = []
        self.saved_tensor_badges: list[SavedTensorBadge] = []
        self.parameter_badges: list[ParameterBadge] = []
        self._folded = folded
        self._victims = victims
        self._regions: dict[int | None, Region] = {r.region_id: r for r in analysis.regions}
        self._region_index = {r.region_id: i for i, r in enumerate(analysis.regions)}
        self._reentrant: dict[int | None, Region] = {
            recomputation.node_id: region
            for region in analysis.regions
            if region.reentrant
            for recomputation in region.recomputations
        }
        self._compiled = {run.node_id: run for run in region_times(analysis)}
        self._memory = analysis.saved_memory
        self._annotations = Annotations(analysis)
        self._node_badges = NodeBadgeReader(analysis, findings)
        self._parameters = ParameterBadges(analysis, folded)
        self._saved_tensors = SavedTensorBadges(analysis, self._annotations.kept_on_ctx, blamed)
        self._target_count = [0] * len(folded.nodes)
        for source, _, _ in folded.edges:
            self._target_count[source] += 1

    def build(self, places: Sequence[NodePlace]) -> None:
        """Add all nodes and badges."""
        for index, node in enumerate(self._folded.nodes):
            saved = self._saved_tensors.of(index, node, alone=places[index].alone)
            parameters = self._parameters.of(index, places[index].path, alone=places[index].alone)
            self.saved_tensor_badges += saved
            self.parameter_badges += parameters
            self.nodes.append(self._node(index, places[index], saved, parameters))

    def _node(
        self,
        index: int,
        place: NodePlace,
        saved: list[SavedTensorBadge],
        parameters: list[ParameterBadge],
    ) -> SceneNode:
        node = self._folded.nodes[index]
        reentrant = self._reentrant.get(node.node_id)
        op, region = node.op, reentrant or self._regions.get(node.region_id)
        run = self._compiled.get(node.node_id)
        error = index in self._victims
        sizes = self._memory.of_nodes((node.node_id,))
        badges = self._node_badges.of(node, self._folded.leaves[index])
        compact = (
            node.name == "AddBackward0"
            and self._target_count[index] == 2  # noqa: PLR2004  a sum of two
            and not (node.saved or parameters or error or badges.wrote or badges.culprit)
        )
        op_name = elide(display_op_name(op.name), MAX_NAME) if op is not None else ""
        if reentrant is not None:
            op_name = "checkpoint"
        name = elide(node.name, MAX_NAME)
        if compact:
            op_width, name_width = COMPACT_WIDTH, 0.0
            right = BOX_TO_BADGE + text_width(name, BADGE_FONT_SIZE)
        else:
            op_width, name_width = _box_widths(op_name, name, badges, alone=place.alone)
            right = right_width(saved)
        filename, lineno, _ = source_line(node.location)
        return _make_node(
            index=index,
            node_id=node.node_id,
            group=place.group,
            op=op_name,
            name=name,
            module=self._title(node),
            sequence_nr=node.sequence_nr,
            filename=filename,
            lineno=lineno,
            state=node.state,
            error=error,
            writes=badges.culprit,
            recomputes=len(region.recomputations) if region else 0,
            runs=node.runs,
            duration_ns=node_time(self._analysis, node),
            shape=format_shape(op.outputs[0].shape) if op and op.outputs else "",
            compact=compact,
            op_width=op_width,
            name_width=name_width,
            left_width=badges_width(parameters),
            right_width=right,
            hooks=badges.hooks,
            notes=self._annotations.of([node, *self._folded.leaves[index]]),
            born_ns=op.time_ns if op else run.start_ns if run else -1,
            runs_ns=tuple(
                [t for start, end in node.ran for t in (start, -1 if end is None else end)]
            ),
            forward_ns=op.duration_ns if op else run.own_ns if run else 0,
            region=self._region_index[region.region_id] if region else -1,
            wrote=badges.wrote,
            cloned=badges.cloned,
            not_finite=badges.not_finite,
            saved_nbytes=sizes.saved + sizes.recomputed,
            call=self._tree.of_node(node),
        )


def _box_widths(op: str, name: str, badges: NodeBadges, *, alone: bool) -> tuple[float, float]:
    """Return the widths of a box's parts. The pencil of a write is in the left one.

    A box has no left part if the name of the node says which op it is.
    """
    name_width = text_width(name, bold=True) + 16
    pencil = 16 if badges.wrote or badges.culprit else 0
    if not op or (same_name(op, name) and not pencil):
        return 0.0, max(name_width, COLUMN_NAME_WIDTH if alone else 0.0)
    op_width = text_width(op, bold=badges.culprit) + 16 + pencil
    if alone:
        return max(op_width, COLUMN_OP_WIDTH), max(name_width, COLUMN_NAME_WIDTH)
    return op_width, name_width


def badges_width(badges: Sequence[ParameterBadge] | Sequence[SavedTensorBadge]) -> float:
    """Return the width of a node's visible badges, with the gap between them and the box."""
    visible = [badge.width for badge in badges if badge.width]
    if not visible:
        return 0.0
    return BOX_TO_BADGE + sum(visible) + BADGE_GAP * (len(visible) - 1)


def right_width(saved: Sequence[SavedTensorBadge]) -> float:
    """Return the width of a node's saved-tensor badges, and of the number of hidden ones."""
    return badges_width(saved) + (0.0 if all(badge.width for badge in saved) else MORE_WIDTH)


# --- node badges ----------------------------------------------------------------------------------
#
# Icons on a node's box: hooks, in-place writes, mutation clones, values that are not finite.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBadges:
    """Text for the icons of one node, empty where there is no icon."""

    hooks: tuple[str, ...]
    culprit: bool  # its op is the culprit write of a finding
    wrote: str  # versions before and after its op's in-place write: "v0 → v1"
    cloned: str  # saved tensors that were cloned before a write: "self · 3.1 MB"
    not_finite: str  # "forward gave 3 NaN"


_make_badges = maker(NodeBadges)


class NodeBadgeReader:
    """Collects the badges of nodes from the analysis."""

    def __init__(self, analysis: Analysis, findings: Sequence[Finding]) -> None:
        # A hint does not say that a write did harm.
        self._findings = [finding for finding in findings if finding.confidence != "hint"]
        self._finding_events = {event for finding in self._findings for event in finding.events}
        self._hooks: dict[int, list[Hook]] = {}
        for hook in analysis.hooks:
            for node_id in hook.node_ids:
                self._hooks.setdefault(node_id, []).append(hook)
        self._versions: dict[int | None, tuple[int, int]] = {
            op_seq: (before, after)
            for op_seq, before, after in analysis.log.fields(
                VersionBumped, "op_seq", "version", "seen_version"
            )
        }
        self._not_finite = {e.content_hash: _counts(e) for e in analysis.log.of(NotFiniteSeen)}
        self._backward_ops: dict[int, list[Op]] = {}
        if self._not_finite:
            for op in analysis.ops:
                if op.backward_node_id is not None:
                    self._backward_ops.setdefault(op.backward_node_id, []).append(op)

    def of(self, node: Node, leaves: Iterable[Node]) -> NodeBadges:
        """Return the badges of a node. Hooks of its leaves count as its own."""
        hooks = [
            hook
            for each in ((node, *leaves) if self._hooks else ())
            for hook in self._hooks.get(each.node_id, ())
        ]
        cloned = [saved for saved in node.saved if saved.cloned]
        versions = None if node.op is None else self._versions.get(node.op.seq)
        return _make_badges(
            hooks=tuple(dict.fromkeys(map(hook_description, hooks))),
            culprit=self._is_culprit(node.op),
            wrote="" if versions is None else f"v{versions[0]} → v{versions[1]}",
            cloned=", ".join([f"{s.slot} · {format_bytes(s.tensor.nbytes)}" for s in cloned]),
            not_finite=self._not_finite_text(node) if self._not_finite else "",
        )

    def _is_culprit(self, op: Op | None) -> bool:
        if op is None or not op.written:
            return False
        blamed = any(f.culprit is not None and f.culprit == op.location for f in self._findings)
        return blamed or op.seq in self._finding_events

    def _not_finite_text(self, node: Node) -> str:
        phases = (
            ("forward", () if node.op is None else (node.op,)),
            ("backward", self._backward_ops.get(node.node_id, ())),
        )
        parts = []
        for phase, ops in phases:
            hashes = [value for op in ops for value in op.output_hashes]
            counts = [self._not_finite[value] for value in hashes if value in self._not_finite]
            if counts:
                parts.append(f"{phase} gave {counts[0]}")
        return ", ".join(parts)


def _counts(seen: NotFiniteSeen) -> str:
    counts = ((seen.nan_count, "NaN"), (seen.infinity_count, "infinite"))
    return " and ".join(f"{count:,} {word}" for count, word in counts if count)


# --- node tooltips --------------------------------------------------------------------------------
#
# Tooltip lines of nodes: roots and inputs of backward calls, ctx marks, moves, packing hooks.


_HOOK_PAIRS: Final = {"user", "offload", "allow_mutation"}


class Annotations:
    """Collects the tooltip lines of all nodes."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._lines: dict[int, dict[str, None]] = defaultdict(dict)  # by node id, without repeats
        self._leaves = {
            node.parameter.tensor.tensor_id: node_id
            for node_id, node in analysis.graph.nodes.items()
            if node.parameter is not None
        }
        self.kept_on_ctx: dict[int, list[ContextTensorKept]] = defaultdict(list)
        """Tensors that custom Functions keep on ``ctx``, by node id."""
        for event in analysis.log.of(BackwardStarted):
            self._add_backward(event)
        for kept in analysis.log.of(ContextTensorKept):
            self.kept_on_ctx[kept.node_id].append(kept)
            nbytes = format_bytes(analysis.tensors[kept.tensor_id].nbytes)
            self._add(kept.node_id, f"keeps {kept.slot}, {nbytes}: no version check, never freed")
        self._add_marks()
        self._add_moves()
        self._add_hook_pairs()

    def of(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the lines of a drawn node and its leaves."""
        lines = {line: None for node in nodes for line in self._lines.get(node.node_id, ())}
        return tuple(lines)

    def _add(self, node_id: int, line: str) -> None:
        self._lines[node_id][line] = None

    def _add_backward(self, event: BackwardStarted) -> None:
        """Annotate the roots of a backward call, and the inputs whose gradients it computes."""
        call = "backward" if event.accumulate else "autograd.grad"
        at = self._at(event.stack_id)
        for node_id in event.root_ids:
            self._add(node_id, f"a root of {call}{at}")
        leaves = (self._leaves.get(tensor_id, NO_ID) for tensor_id in event.input_tensor_ids)
        for node_id in {*event.input_ids, *leaves} - {NO_ID}:
            node = self._analysis.graph.nodes.get(node_id)
            leaf = None if node is None else node.parameter
            name = "this node" if leaf is None else leaf.name or "an unnamed leaf"
            self._add(node_id, f"gradient of {name} requested by {call}{at}")

    def _add_marks(self) -> None:
        """Annotate ``mark_dirty`` and ``mark_non_differentiable`` calls of custom Functions."""
        events = self._analysis.log.of(FunctionMarked)
        if not events:
            return
        nodes = {(n.thread, n.sequence_nr): i for i, n in self._analysis.graph.nodes.items()}
        for event in events:
            node_id = nodes.get((event.thread, event.sequence_nr))
            if node_id is not None:
                tensors = plural(len(event.tensor_ids), "tensor")
                self._add(node_id, f"{event.mark}: {tensors}{self._at(event.stack_id)}")

    def _add_moves(self) -> None:
        """Annotate saved tensors that hooks moved to another device."""
        for event in self._analysis.log.of(TensorMoved):
            saved = self._analysis.saved.get(event.saved_id)
            if saved is not None and saved.node_id is not None:
                pinned = ", pinned" if event.pinned else ""
                slot, size = saved.slot or "a saved tensor", format_bytes(event.nbytes)
                self._add(saved.node_id, f"{slot} moved to {event.device}: {size}{pinned}")

    def _add_hook_pairs(self) -> None:
        """Annotate saved tensors with the innermost pair of hooks of their thread."""
        log = self._analysis.log
        if not log.of(HooksEntered):
            return
        open_: dict[int, dict[int, HooksEntered]] = defaultdict(dict)  # by thread and pair
        for event in log.merged(HooksEntered, HooksLeft, TensorSaved):
            pairs = open_[event.thread]
            if isinstance(event, HooksEntered):
                pairs[event.pair_id] = event
            elif isinstance(event, HooksLeft):
                pairs.pop(event.pair_id, None)
            elif isinstance(event, TensorSaved) and pairs and event.packed_by in _HOOK_PAIRS:
                pair, saved = pairs[max(pairs)], self._analysis.saved[event.saved_id]
                if event.node_id is None and saved.node_id is not None:  # else the slot's own hooks
                    line = f"{saved.slot or 'a tensor'} packed by {pair.function}"
                    self._add(saved.node_id, line + self._at(pair.stack_id))

    def _at(self, stack_id: int | None) -> str:
        location = self._analysis.location(stack_id)
        return "" if location is None else f" · {location_in_folder(location)}"


# --- saved tensor badges --------------------------------------------------------------------------
#
# Saved-tensor badges: the tensors that a node saved or that a custom Function keeps on ctx.


_make_badge = maker(SavedTensorBadge)

MAX_BADGES: Final = 3
BADGE_PADDING: Final = 18.0


class SavedTensorBadges:
    """Builds the saved-tensor badges of nodes."""

    def __init__(
        self,
        analysis: Analysis,
        kept_on_ctx: Mapping[int, Sequence[ContextTensorKept]],
        blamed: frozenset[int],
    ) -> None:
        """Take the analysis, tensors kept on ctx by node id, and ids of wrong saved tensors."""
        self._blamed = blamed
        self._stale = analysis.stale
        self._again: dict[tuple[int | None, int | None], list[SavedTensor]] = defaultdict(list)
        for each in analysis.saved.values():
            if each.recompute_id is not None:
                self._again[each.region_id, each.position].append(each)
        self._analysis = analysis
        self._tensors = analysis.tensors
        self._kept_on_ctx = kept_on_ctx
        tensors = [analysis.tensors[tensor_id] for tensor_id in analysis.parameters]
        self._parameter_storages = {t.storage_id for t in tensors if t.storage_id is not None}

    def of(self, index: int, node: Node, *, alone: bool = True) -> list[SavedTensorBadge]:
        """Return the badges of a node, modified tensors first.

        Parameters are left out: they have parameter badges. A node next to others in its row shows
        one badge, so that badges do not push its neighbors apart.
        """
        saved = [s for s in node.saved if s.saved_id in self._blamed]
        saved += [
            s
            for s in node.saved
            if s.tensor.storage_id not in self._parameter_storages and s not in saved
        ]
        most = MAX_BADGES if alone else 1
        badges = [self._badge(index, s, visible=i < most) for i, s in enumerate(saved)]
        for kept in self._kept_on_ctx.get(node.node_id, ()):
            badges.append(self._ctx_badge(index, kept, visible=len(badges) < most))
        return badges

    def _ctx_badge(self, index: int, kept: ContextTensorKept, *, visible: bool) -> SavedTensorBadge:
        tensor = self._tensors[kept.tensor_id]
        label = saved_tensor_label(kept.slot, None, None, tensor.storage_nbytes)
        return _make_badge(
            node=index,
            saved_id=-1,
            slot=kept.slot,
            version=None,
            seen_version=None,
            nbytes=tensor.storage_nbytes,
            shape=tensor_shape_text(self._analysis, tensor),
            dtype=tensor.dtype,
            state="held",
            packed_by="ctx",
            storage_id=tensor.storage_id,
            width=_width(label) if visible else 0.0,
        )

    def _badge(self, index: int, saved: SavedTensor, *, visible: bool) -> SavedTensorBadge:
        slot, changed = elide(saved.slot or "", MAX_NAME // 2), saved.changed_version
        stale = self._stale.get(saved.saved_id)
        if stale is not None and changed is None:
            changed = stale.seen_version
        seen = saved.version if changed is None else changed
        label = saved_tensor_label(slot, saved.version, seen, saved.tensor.storage_nbytes)
        return _make_badge(
            node=index,
            saved_id=saved.saved_id,
            slot=slot,
            version=saved.version,
            seen_version=seen,
            nbytes=saved.tensor.storage_nbytes,
            shape=tensor_shape_text(self._analysis, saved.tensor),
            dtype=saved.tensor.dtype,
            state="broken"
            if saved.saved_id in self._blamed
            else "stale"
            if stale is not None
            else _state(saved, self._again.get((saved.region_id, saved.position), ())),
            packed_by=saved.packed_by,
            storage_id=saved.tensor.storage_id,
            width=_width(label) if visible else 0.0,
            saved_ns=-1 if saved.saved_ns is None else saved.saved_ns,
            released_ns=-1 if saved.released_ns is None else saved.released_ns,
        )


def badge_width(badge: SavedTensorBadge) -> float:
    """Return the width of a saved-tensor badge with its text."""
    return _width(saved_tensor_label(badge.slot, badge.version, badge.seen_version, badge.nbytes))


def _width(label: tuple[str, str, str]) -> float:
    slot, versions, nbytes = label
    width = text_width(slot + nbytes, BADGE_FONT_SIZE)
    return width + text_width(versions, BADGE_FONT_SIZE, bold=True) + BADGE_PADDING


def _state(saved: SavedTensor, again: Collection[SavedTensor]) -> SavedTensorState:
    """Return the state of a saved tensor, with what recomputations saved at its position."""
    if saved.packed_by == "recompute":
        return "recomputed"
    if saved.packed_by == "checkpoint":
        read = any(not unpack.failed for unpack in saved.unpacks)
        filled = any(fill_one_slot(saved, each) for each in again)
        return "recomputed" if read or filled else "freed"
    return "held" if saved.released_seq is None else "released"


# --- kinds of saved tensors: what a slot of a node means, in the words of model code --------------


KINDS: Final = tuple(
    SceneSavedKind(name=name, title=title, light=light, dark=dark)
    for name, title, light, dark in (
        ("activation", "activation functions", "#1b8367", "#3fb893"),
        ("attention", "softmax and masks", "#5b5bd6", "#8d8df0"),
        ("linear", "linear inputs", "#93bfd6", "#93c7e0"),
        ("product", "matrix products", "#3d8fd6", "#62aef0"),
        ("convolution", "convolution inputs", "#86a02c", "#a9c34f"),
        ("norm", "norm inputs", "#c08a2e", "#d9a84e"),
        ("loss", "logits and losses", "#8c6d9e", "#b094c4"),
        ("elementwise", "elementwise factors", "#9a7b4f", "#bfa077"),
        ("index", "indices and masks", "#8a9199", "#9aa3ad"),
        ("compiled", "compiled regions", "#3567a8", "#6f9bdc"),
        ("argument", "checkpoint arguments", "#7a4fc0", "#b08df0"),
        ("other", "other saved tensors", "#a8adb3", "#6c737b"),
    )
)
"""In the order of the legend. Red is left to what does harm."""

TITLES: Final = {kind.name: kind.title for kind in KINDS}

_POINTWISE: Final = (
    "Gelu|Relu|Silu|Sigmoid|Tanh|LeakyRelu|Elu|Celu|Selu|Hardswish|Hardsigmoid|Hardtanh|Softplus|"
    "Mish|Prelu|RreluWithNoise|Threshold|Glu|LogSigmoid|Softshrink|Hardshrink"
)
_NORMS: Final = (
    "NativeLayerNorm|NativeBatchNorm|CudnnBatchNorm|NativeGroupNorm|RmsNorm|FusedRmsNorm"
)
_LOSSES: Final = (
    "LogSoftmax|NllLoss|NllLoss2D|MseLoss|BinaryCrossEntropy|BinaryCrossEntropyWithLogits|"
    "SmoothL1Loss|HuberLoss|KlDiv|CrossEntropyLoss|SoftMarginLoss|L1Loss"
)

_ELEMENTWISE: Final = (
    "Mul|Div|Pow|Exp|Log|Sqrt|Rsqrt|Sin|Cos|Reciprocal|Erf|Abs|Clamp.*|Norm|LinalgVectorNorm|Prod|"
    "Cumsum|Var|Std|Square|Maximum|Minimum|Lerp|Addcmul|Addcdiv"
)

_RULES: Final[tuple[tuple[re.Pattern[str], str, str, str], ...]] = tuple(
    (re.compile(f"(?:{names})(?:Backward)?\\d*$"), slot, kind, label)
    for names, slot, kind, label in (
        ("NativeDropout|Dropout", "result1|mask", "attention", "dropout mask"),
        (_POINTWISE, "result", "activation", "{op} output"),
        (_POINTWISE, "", "activation", "{op} input"),
        ("Softmax", "", "attention", "softmax result"),
        ("ScaledDotProduct.*", "query|key|value", "product", "{slot}"),
        ("ScaledDotProduct.*", "", "attention", "attention {slot}"),
        ("MaskedFill", "", "attention", "mask"),
        ("Addmm|Linear|Addmv", "mat1|input|vec", "linear", "linear input"),
        ("Addmm|Linear|Mm", "", "linear", "linear input"),
        ("Bmm|Baddbmm|Mv|Dot", "self|batch1", "product", "left factor"),
        ("Bmm|Baddbmm|Mv|Dot", "", "product", "right factor"),
        (".*Convolution", "input|self", "convolution", "convolution input"),
        (_NORMS, "input|self", "norm", "norm input"),
        ("FusedRmsNorm|RmsNorm", "", "norm", "reciprocal of rms"),
        (_NORMS, "result1|save_mean", "norm", "mean"),
        (_NORMS, "result2|save_invstd", "norm", "reciprocal of std"),
        (_NORMS, "", "norm", "norm statistics"),
        (_LOSSES, "target", "loss", "targets"),
        ("LogSoftmax", "result", "loss", "log probabilities"),
        ("NllLoss.*", "self", "loss", "log probabilities"),
        (_LOSSES, "total_weight", "loss", "total weight of the loss"),
        (_LOSSES, "result", "loss", "result of the loss"),
        (_LOSSES, "", "loss", "logits"),
        ("Embedding", "indices|other", "index", "indices of the embedding"),
        ("MaxPool.*|AdaptiveMaxPool.*", "result1|indices", "index", "indices of the maxima"),
        ("MaxPool.*|AdaptiveMaxPool.*", "self", "other", "pooling input"),
        ("Sort|Topk|Max|Min", "indices|result1", "index", "indices of the {op} result"),
        ("Where", "condition", "index", "condition of where"),
        ("Gather|Index.*|Scatter.*", "indices|index|other", "index", "indices"),
        ("CompiledFunction", "", "compiled", "saved by the compiler"),
        ("Mul", "self|other", "elementwise", "factor"),
        ("Div", "other", "elementwise", "divisor"),
        ("Div", "self", "elementwise", "dividend"),
        ("Pow", "self", "elementwise", "base of a power"),
        ("Pow", "exponent", "elementwise", "exponent"),
        ("Lerp", "weight", "elementwise", "weight of lerp"),
        (_ELEMENTWISE, "result", "elementwise", "{op} output"),
        (_ELEMENTWISE, "self", "elementwise", "{op} input"),
        (_ELEMENTWISE, "", "elementwise", "{op} {slot}"),
    )
)  # fmt: skip

_SPELLED: Final = {"gelu": "GELU", "relu": "ReLU", "silu": "SiLU", "elu": "ELU", "glu": "GLU"}
_ACTIVATIONS: Final = frozenset(
    name for each in _POINTWISE.split("|") for name in (each.lower(), f"{each.lower()}_")
)
_NUMBER: Final = re.compile(r"Backward\d*$")


def kind_of_slot(
    node: str, slot: str, made_by: str, compiled: SavedAt | None = None
) -> tuple[str, str]:
    """Return the kind and the meaning of a saved tensor.

    Args:
        node: name of the node that saved it, "GeluBackward0".
        slot: "self".
        made_by: name of the op that created its storage, "" if unknown: some masks are made by
            operators of random numbers, and saved by a multiplication.
        compiled: what a compiled region saved it for, None elsewhere.
    """
    if compiled is not None and compiled.node:
        inside = kind_of_slot(compiled.node, compiled.slot, compiled.made_by)
        if inside[0] != "other":
            return inside
    if node.startswith("Mul") and made_by in {"empty_like", "bernoulli", "bernoulli_", "div_"}:
        return "attention", "dropout mask"
    if node.startswith(("Bmm", "Mul")) and made_by in {"_softmax", "softmax"}:
        return "attention", "softmax result"
    if made_by in _ACTIVATIONS and node.startswith(("Addmm", "Mm", "Linear", "Convolution")):
        return "activation", f"{_spelled(made_by)} output"
    name = _NUMBER.sub("", node).removeprefix("Native")
    op = _spelled(name)
    for pattern, slots, kind, label in _RULES:
        if pattern.match(node) and (not slots or re.fullmatch(slots, slot)):
            return kind, label.format(op=op, slot=slot.replace("_", " "))
    return "other", f"{name} {slot}".strip() or "saved tensor"


def _spelled(op: str) -> str:
    """Return an op as papers spell it: "GELU", "leaky relu"."""
    known = _SPELLED.get(op.rstrip("_").lower())
    return known or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", op).lower()
