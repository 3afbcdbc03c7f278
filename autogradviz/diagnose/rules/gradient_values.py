"""Rules: gradients that are not finite, too large or too small, or counted twice."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from math import prod, sqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.evidence.custom_functions import applied_at
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import UNSCALE
from autogradviz.diagnose.evidence.values_not_finite import NotFiniteValues, entries_text
from autogradviz.diagnose.finding_text import describe_op, in_module, join_names, short_location
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.source.operands_changed_as_fixes import with_operand_kept_away
from autogradviz.diagnose.source.statements_rewritten_as_fixes import safe_input
from autogradviz.events import (
    BackwardStarted,
    GradAccumulated,
    LocalGradientNormRead,
    NodeStarted,
    NormRead,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op
    from autogradviz.diagnose.evidence.evidence import Evidence

    _Kind = Literal["shared", "passed on"]

    from autogradviz.diagnose.finding import Confidence
    from autogradviz.events import NotFiniteSeen


# --- gradients of very different size in different layers: hints from gradient norms --------------


_RATIO: Final = 1e6  # of the largest layer's gradient to the smallest one's
_HUGE: Final = 1e4  # root mean square of the entries
_LAYERS: Final = 3  # fewer show no trend
_ROWS: Final = 6  # layers listed
_DIMENSIONS: Final = 2  # of a weight; gradients of biases and scales differ in magnitude


@dataclass(frozen=True, slots=True)
class _WeightGradient:
    """The size of one weight's gradient."""

    tensor_id: int
    name: str
    size: float  # root mean square of the entries
    first: Op  # the first op that takes the weight
    seq: int  # of the event that recorded the norm


@rule(
    "gradient-exploding",
    "gradient-vanishing",
    mechanism="value",
    when=NoError(),
    after="leaf_frozen",
    needs={"ops"},
)
def gradient_magnitude(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if gradients explode or vanish from the last layer to the first."""
    layers = _weight_gradients(evidence)
    nonzero = [layer for layer in layers if layer.size > 0]
    if len(nonzero) < _LAYERS:
        return
    largest = max(nonzero, key=lambda layer: layer.size)
    smallest = min(nonzero, key=lambda layer: layer.size)
    earlier_is_larger = largest.first.seq < smallest.first.seq
    scaled = any(op.name == UNSCALE for op in evidence.analysis.ops)
    if scaled and largest.size >= _HUGE:
        return  # read before a GradScaler divided them
    if largest.size >= _HUGE and (earlier_is_larger or smallest.size * _RATIO > largest.size):
        yield _magnitude(layers, largest, huge=True)
    elif smallest.size * _RATIO <= largest.size and not earlier_is_larger:
        yield _magnitude(layers, smallest, huge=False)


def _weight_gradients(evidence: Evidence) -> list[_WeightGradient]:
    """Return the gradients of weights, in the order in which the forward uses the weights."""
    analysis = evidence.analysis
    norms = analysis.log.of(NormRead)
    if not norms:
        return []
    users = evidence.first_readers
    found = []
    for event in norms:
        tensor, names = analysis.tensors[event.tensor_id], analysis.parameters.get(event.tensor_id)
        user = users.get(tensor.storage_id) if tensor.storage_id is not None else None
        weight = event.place == "gradient" and len(tensor.shape) >= _DIMENSIONS
        if weight and names and user is not None and event.norm is not None:
            size = event.norm / sqrt(prod(tensor.shape))
            found.append(_WeightGradient(event.tensor_id, names[0], size, user, event.seq))
    return sorted(found, key=lambda gradient: gradient.first.seq)


def _magnitude(layers: list[_WeightGradient], worst: _WeightGradient, *, huge: bool) -> Draft:
    last = len(layers) - 1
    listed = [layers[i * last // (_ROWS - 1)] for i in range(_ROWS)] if last >= _ROWS else layers
    return Draft(
        slug="gradient-exploding" if huge else "gradient-vanishing",
        title=f"The gradient {'is huge' if huge else 'vanishes towards the first layers'}: "
        f"{worst.size:.1e} per entry at {worst.name}",
        culprit=worst.first,
        victim=layers[-1].first,
        explanation=[
            "The root mean square of each weight's gradient, in the order of the forward "
            "(the loss is below):",
            *[f"    {layer.name}: {layer.size:.1e}" for layer in listed],
            f"Gradients flow upwards here. {worst.name} is used at:",
            worst.first,
        ],
        fix="# clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0);\n"
        "# normalize between layers, scale the initial weights down, add residual connections"
        if huge
        else "# residual connections, normalization between layers, ReLU-like activations,\n"
        "# initial weights of the right scale",
        confidence="hint",
        evidence=(worst.seq,),
        parameters=[layer.tensor_id for layer in layers],
    )


# --- nested backward double counted ---------------------------------------------------------------
#
# A custom backward adds to a leaf's .grad in a nested backward and also returns the gradient.


@rule(
    "gradient-counted-twice",
    mechanism="mix",
    when=NoError(),
    group="region",
    after="shared-gradient-written",
)
def gradient_double_counted(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each leaf to which a node and a backward inside that node accumulate."""
    log = evidence.analysis.log
    nested = {e.backward_id: e for e in log.of(BackwardStarted)
              if e.parent_backward_id is not None and e.accumulate}  # fmt: skip
    if not nested:
        return
    accumulated: dict[int, list[GradAccumulated]] = defaultdict(list)
    for event in log.of(GradAccumulated):
        accumulated[event.node_id].append(event)
    next_nodes: dict[int, set[int]] = defaultdict(set)
    for edge in evidence.analysis.graph.edges:
        next_nodes[edge.source].add(edge.target)
    for node_id, inner in _backwards_inside_nodes(evidence, nested).items():
        for leaf in sorted(next_nodes[node_id] & accumulated.keys()):
            first = [e for e in accumulated[leaf] if e.backward_id == inner.backward_id]
            second = [e for e in accumulated[leaf] if e.backward_id == inner.parent_backward_id]
            if first and second:
                node = evidence.analysis.graph.nodes[node_id]
                yield _counted_twice(evidence, node, inner, first[0], second[0])


def _backwards_inside_nodes(
    evidence: Evidence, nested: dict[int, BackwardStarted]
) -> dict[int, BackwardStarted]:
    """Return the first backward that each node started while it ran."""
    found: dict[int, BackwardStarted] = {}
    running: dict[tuple[int, int], int] = {}  # by backward and thread
    events: list[NodeStarted | BackwardStarted] = list(evidence.analysis.log.of(NodeStarted))
    for event in sorted([*events, *nested.values()], key=attrgetter("seq")):
        if isinstance(event, NodeStarted):
            running[event.backward_id, event.thread] = event.node_id
        elif event.parent_backward_id is not None:
            node_id = running.get((event.parent_backward_id, event.thread))
            node = evidence.analysis.graph.nodes.get(node_id) if node_id is not None else None
            if node is not None:
                found.setdefault(node.node_id, event)
    return found


def _counted_twice(
    evidence: Evidence,
    node: Node,
    inner: BackwardStarted,
    first: GradAccumulated,
    second: GradAccumulated,
) -> Draft:
    name = evidence.analysis.leaf_name(first.tensor_id)
    culprit = evidence.analysis.location(inner.stack_id)
    victim = applied_at(evidence, node) or node.location
    return Draft(
        title=f"{name} gets its gradient from {node.name} twice",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name} is an argument of a custom Function:",
            victim,
            f"Its backward starts a nested backward at {short_location(culprit)}:",
            culprit,
            f"That adds the gradient to {name}.grad. The gradient that the Function then returns "
            "for the same leaf is added a second time by the outer backward.",
        ],
        fix="# return the gradients without writing .grad:\n"
        "return torch.autograd.grad(output, inputs, gradient)",
        confidence="likely",
        evidence=(inner, first, second, node),
    )


# --- not finite -----------------------------------------------------------------------------------
#
# A loss or a gradient is NaN or infinite. Find the operator that gave the first such value.
#
# The gradient norms that every recording contains show that there is such a value. Only
# fingerprints show where: each content that is not finite has its fingerprint recorded.


_Read: TypeAlias = NormRead | LocalGradientNormRead

_LIMITS: Final = frozenset({"clamp", "clamp_min", "clamp_max", "clip", "hardtanh"})
_ANOMALY: Final = re.compile(r"Function '(\w+)' returned nan values in its \d+th output")
_FIXES: Final = {
    "log": "torch.log(x.clamp_min(1e-8))  # or log_softmax, log1p, logsumexp",
    "div": "x / (y + 1e-8)",
    "reciprocal": "1 / (x + 1e-8)",
    "sqrt": "torch.sqrt(x + 1e-8)  # its derivative at 0 is infinite",
    "pow": "(x + 1e-8).pow(...)  # a fractional power has an infinite derivative at 0",
    "exp": "# subtract the largest entry first, or use logsumexp or softmax",
    "_softmax": "# leave at least one entry of each row unmasked",
    "linalg_vector_norm": "(x.square().sum() + 1e-8).sqrt()  # a norm has no derivative at 0",
    "norm": "(x.square().sum() + 1e-8).sqrt()  # a norm has no derivative at 0",
}


@rule("not-finite", mechanism="value", when=ErrorMessage("returned nan values in its"))
def nan_in_anomaly_mode(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the node at which anomaly detection stopped the backward."""
    analysis, error = evidence.analysis, evidence.analysis.error
    match = _ANOMALY.search(error.message) if error is not None else None
    if match is None:
        return
    ran = (analysis.graph.nodes.get(e.node_id) for e in reversed(analysis.log.of(NodeStarted)))
    node = next((n for n in ran if n is not None and n.name == match[1]), None)
    yield Draft(
        title=f"{match[1]} gave the first NaN of backward",
        culprit=node,
        victim=evidence.raised_at(),
        explanation=[
            "Anomaly detection stopped the backward at the first node that gave NaN:",
            evidence.raised_at(),
            f"The forward of that node{in_module(node.module if node is not None else '')}:",
            node,
        ],
        fix=_fix(node.op if node is not None else None, backward=True),
        evidence=(error, node),
    )


@rule("not-finite", mechanism="value", when=NoError())
def not_finite(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a loss or a gradient is NaN or infinite."""
    log = evidence.analysis.log
    bad: list[_Read] = [event for event in log.of(NormRead) if event.norm is None]
    bad += [event for event in log.of(LocalGradientNormRead) if event.norm is None]
    if not bad:
        return
    contents = NotFiniteValues(evidence.analysis)
    losses = [event for event in bad if not _is_gradient(event)]
    origin = contents.origin_of_loss(losses[0].tensor_id) if losses else None
    origin = origin if losses else contents.first_in_backward()
    began_late = "fingerprints" not in evidence.recorded
    if origin is not None and began_late and contents.takes_from_before(origin):
        yield _from_before(evidence, contents, origin, bad)
        return
    saved = None if origin is None else contents.saved_origin(origin)
    if saved is not None and began_late and evidence.analysis.in_optimizer(saved.stack_id):
        return  # it used a gradient of before
    if origin is not None and saved is not None:
        yield _from_saved(evidence, contents, origin, saved, bad)
    elif origin is not None:
        yield _with_origin(evidence, contents, origin, bad)
    else:
        yield _without_origin(evidence, bad)


def _is_gradient(read: _Read) -> bool:
    return isinstance(read, LocalGradientNormRead) or read.place == "gradient"


def _with_origin(
    evidence: Evidence, contents: NotFiniteValues, origin: Op, bad: list[_Read]
) -> Draft:
    output, inputs = contents.output(origin), contents.inputs(origin)
    nodes = evidence.analysis.graph.nodes
    backward = origin.phase == "backward"
    node_id = origin.backward_node_id if backward else None
    node = nodes.get(node_id) if node_id is not None else None
    made = nodes.get(origin.node_id) if origin.node_id is not None else None
    guard = _guard(evidence, node) if not inputs else None
    culprit = node.location if node is not None else origin.location
    name = node.name if node is not None else origin.name.lstrip("_")
    kind = "NaN" if output is None or output.nan_count else "infinity"
    return Draft(
        title=f"{name} gave the first {kind}" + (" of backward" if backward else ""),
        culprit=culprit if guard is None else guard.location,
        victim=evidence.backward_line(bad[0].backward_id),
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. The first such value appears"
            f"{in_module(origin.module)} at:",
            culprit,
            *(
                ("Its operand is limited here, to values whose derivative is not finite:", guard)
                if guard is not None
                else ()
            ),
            f"Its node called {origin.name}." if backward else f"That is {describe_op(origin)}.",
            f"Its output has {_entries(output)};",
            f"its inputs have {_entries(contents.bad[inputs[0]])}."
            if inputs
            else "all its inputs are finite.",
            *(_healed(contents, node.op) if node is not None else []),
        ],
        fix=_fix(node.op if node is not None and node.op is not None else origin)
        if guard is None
        else "x.clamp(-1 + 1e-6, 1 - 1e-6)  # bounds at which the derivative is finite",
        confidence=_confidence(evidence, bad),
        evidence=(origin, bad[0], node or made),
    )


def _guard(evidence: Evidence, node: Node | None) -> Op | None:
    """Return the op that limited the operand of a node whose derivative is not finite there."""
    if node is None or node.op is None or len(node.op.inputs) != 1:
        return None
    graph = evidence.causal_graph
    made = graph.producers(graph.op_of_node.get(node.node_id, NO_OP))[0]
    op = evidence.analysis.op_at(graph.op_seqs[made]) if made != NO_OP else None
    known = op is not None and op.location is not None and op.name in _LIMITS
    return op if known else None


def _from_before(
    evidence: Evidence, contents: NotFiniteValues, origin: Op, bad: list[_Read]
) -> Draft:
    """Return the draft for a value from before the first gradient that was not finite."""
    line = evidence.backward_line(bad[0].backward_id)
    content = contents.bad[contents.inputs(origin)[0]]
    return Draft(
        title=f"{_subject(evidence, bad)} NaN or infinite",
        culprit=None,
        victim=line,
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. Contents of tensors were recorded after "
            "the first gradient that was not finite, that of this backward:",
            line,
            f"Then {describe_op(origin)} got {_entries(content)}, which an operator from before "
            "gave:",
            origin.location,
            "To record which one, skip steps whose gradients are not finite, so that the next "
            "such step begins with finite parameters, or use record(fingerprints=True).",
        ],
        fix="with autogradviz.record(model, fingerprints=True) as trace:\n    ...",
        confidence="hint",
        evidence=(bad[0], origin),
    )


def _from_saved(
    evidence: Evidence, contents: NotFiniteValues, born: Op, saved: Op, bad: list[_Read]
) -> Draft:
    """Return the draft for a value that forward healed, and of which backward made NaN."""
    node = evidence.analysis.graph.nodes.get(born.backward_node_id or -1)
    healer, name = contents.healer(saved), saved.name.lstrip("_")
    node_name = node.name if node is not None else born.name
    kind = "NaN" if (given := contents.output(saved)) is None or given.nan_count else "infinity"
    return Draft(
        title=f"{name} gave {kind}; {healer.name} keeps it out of the loss, not out of the gradient"
        if healer is not None
        else f"{name} gave {kind}, and its gradient is NaN",
        culprit=saved.location,
        victim=evidence.backward_line(bad[0].backward_id),
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. In forward, {name} gave "
            f"{_entries(given)}{in_module(saved.module)} at:",
            saved.location,
            *(
                [
                    f"{healer.name} in {short_location(healer.location)} left these out, so the "
                    "loss is finite:",
                    healer.location,
                ]
                if healer is not None
                else []
            ),
            f"Its derivative uses them: {node_name} multiplied them by gradients, and zero times "
            f"infinity is NaN. Its result has {_entries(contents.output(born))}.",
        ],
        fix=f"# choose the input of {name}, not only its result:\n"
        + (
            safe_input(saved.location, name, healer.location if healer is not None else None)
            or f"torch.where(mask, {name}(torch.where(mask, x, safe)), y)"
        ),
        confidence=_confidence(evidence, bad),
        evidence=(saved, born, bad[0], node),
    )


def _healed(contents: NotFiniteValues, op: Op | None) -> list[Any]:
    """Return the text about the operator of forward that removed the NaN of another one."""
    given = None if op is None else contents.output(op)
    healer = None if op is None or given is None else contents.healer(op)
    if op is None or healer is None:
        return []
    return [f"In forward, {op.name} gave {_entries(given)}; {healer.name} left these out, but not "
            "their gradients:", healer.location]  # fmt: skip


def _without_origin(evidence: Evidence, bad: list[_Read]) -> Draft:
    line = evidence.backward_line(bad[0].backward_id)
    return Draft(
        title=f"{_subject(evidence, bad)} NaN or infinite",
        culprit=None,
        victim=line,
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite after this backward:",
            line,
            "The operator that gave the first such value was not recorded: "
            "record(fingerprints=True) finds it.",
        ],
        fix="with autogradviz.record(model, fingerprints=True) as trace:\n    ...",
        confidence="hint",
        evidence=(bad[0],),
    )


def _fix(op: Op | None, *, backward: bool = False) -> str:
    name = op.name if op is not None else ""
    if op is not None and (changed := with_operand_kept_away(op.location, name)):
        return changed
    point = "where its derivative is infinite" if backward else "outside its range"
    return _FIXES.get(name, f"# keep the inputs away from {point}")


def _entries(content: NotFiniteSeen | None) -> str:
    """Return "3 NaN and 2 infinite entries"."""
    if content is None:
        return "entries that are not finite"
    return entries_text(content.nan_count, content.infinity_count)


def _subject(evidence: Evidence, bad: list[_Read]) -> str:
    if not all(map(_is_gradient, bad)):
        return "The loss is"
    names = list(dict.fromkeys(evidence.analysis.leaf_name(event.tensor_id) for event in bad))
    return f"The gradient of {join_names(names)} is"


def _confidence(evidence: Evidence, bad: list[_Read]) -> Confidence:
    """Return "hint" with a gradient scaler, under which overflow is expected from time to time."""
    if not all(map(_is_gradient, bad)):
        return "certain"
    scaled = any(
        place.filename.replace("\\", "/").endswith("torch/amp/grad_scaler.py")
        for op in evidence.analysis.ops
        for place in evidence.analysis.stack(op.stack_id)
    )
    return "hint" if scaled else "likely"
