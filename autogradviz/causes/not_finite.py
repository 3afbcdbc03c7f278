"""NaN and infinity without fingerprints: the ops that every bad gradient passed, and no good one.

A value that is not finite spreads: every gradient that is computed from it is not finite. So the
node that gave the first one leads to bad leaves only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.causes.cuts import final_norms
from autogradviz.causes.entry import Fact, count
from autogradviz.events import LossRead, NormRead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.facts import Evidence

_SINGULAR: Final = {
    "sqrt": "its derivative is infinite at 0",
    "rsqrt": "it and its derivative are infinite at 0",
    "log": "it and its derivative are infinite at 0",
    "log2": "it and its derivative are infinite at 0",
    "log10": "it and its derivative are infinite at 0",
    "log1p": "it and its derivative are infinite at -1",
    "div": "a divisor of 0 gives infinity or NaN",
    "reciprocal": "it is infinite at 0",
    "pow": "negative and fractional powers are infinite or have infinite derivatives at 0",
    "norm": "it has no derivative at 0",
    "linalg_vector_norm": "it has no derivative at 0",
    "std": "it has no derivative where all entries are equal",
    "exp": "it overflows above 88 in float32",
    "expm1": "it overflows above 88 in float32",
    "acos": "its derivative is infinite at 1 and -1",
    "asin": "its derivative is infinite at 1 and -1",
    "atanh": "it is infinite at 1 and -1",
    "logit": "it is infinite at 0 and 1",
    "atan2": "it has no derivative at the origin",
}
_AT_MOST: Final = 4
_OVERFLOWING: Final = frozenset({"mul", "exp", "pow", "prod", "cumprod"})


def find_not_finite(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line with an op that may have given the first NaN or infinity."""
    if "fingerprints" in evidence.recorded:
        return  # a rule names the op
    norms = final_norms(graph)
    bad = {leaf for leaf, norm in norms.items() if norm is None}
    losses = graph.analysis.log.of(LossRead)
    bad_loss = [event for event in losses if event.loss is None]
    bad_root = any(
        place == "root" and norm is None
        for place, norm in graph.analysis.log.fields(NormRead, "place", "norm")
    )
    if not bad and not bad_loss and not bad_root:
        return
    good = {leaf for leaf, norm in norms.items() if norm is not None}
    in_forward = bool(bad_loss or bad_root) and (not losses or losses[0].loss is None)
    ops = _candidates(graph, good)
    groups: dict[SourceLocation, list[int]] = {}
    for index in ops:
        place = graph.analysis.location(graph.stacks[index])
        if place is not None and graph.analysis.user_stack(graph.stacks[index]):
            groups.setdefault(place, []).append(index)
    ranked = sorted(groups.items(), key=lambda item: -_danger(graph, item[1], item[0]))
    for place, found in ranked[:_AT_MOST]:
        name = max((graph.op_names[i] for i in found), key=lambda n: n in _SINGULAR)
        why = _SINGULAR.get(name, "it may overflow")
        yield Fact(
            mechanism="value",
            location=place,
            effect=f"{name} may have given the first NaN or infinity: {why}",
            weight=1.1 + 0.1 * _danger(graph, found, place),
            lines=[
                f"Of the values that were read, {count(len(bad), 'gradient')} and the losses of "
                f"{count(len(bad_loss), 'backward')} are not finite.",
                "An op on every path to them, and on none to a finite gradient, is here:",
                place,
                f"{name}: {why}.",
                "The loss of the first step was not finite: the forward gave the first one."
                if in_forward
                else "The first loss that was read was finite: backward, or the step, gave it.",
                "record(fingerprints=True) records which op gave the first such value.",
            ],
            confidence="hint",
            parameters=tuple(graph.parameters.get(leaf, "a leaf") for leaf in sorted(bad))[:9],
            events=tuple(graph.op_seqs[i] for i in found[:2]),
            fix="# keep the argument away from the singular point, for example by clamp_min",
        )


def _candidates(graph: CausalGraph, good: set[int]) -> list[int]:
    """Return the ops that may have given it: those whose nodes lead to no finite gradient.

    Of a value that is not finite in the forward, gradients of everything before are not finite too.
    """
    blocked = {node for node, tensor in graph.leaves.items() if tensor in good}
    users: dict[int, list[int]] = {}
    for node, targets in graph.next_nodes.items():
        for target in targets:
            users.setdefault(target, []).append(node)
    waiting = list(blocked)
    while waiting:
        for node in users.get(waiting.pop(), ()):
            if node not in blocked:
                blocked.add(node)
                waiting.append(node)
    dangerous = _SINGULAR.keys() | _OVERFLOWING
    return [
        index
        for index in graph.slice_ops
        if graph.op_names[index] in dangerous and graph.node_of_op[index] not in blocked
    ] or [index for index in graph.slice_ops if graph.op_names[index] in _SINGULAR]


def _danger(graph: CausalGraph, ops: list[int], place: SourceLocation) -> float:
    """Return the rank of a line as the origin: singular ops of the user's own line first."""
    singular = any(graph.op_names[index] in _SINGULAR for index in ops)
    literal = any(word in place.text for word in ("1e", "* 0", "/ 0"))
    own = any(graph.is_users(index) for index in ops)
    return 2.0 * singular + own + 0.5 * literal
