"""Rules: a custom Function that recomputes its forward, and computes it otherwise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.align_ops import match
from autogradviz.diagnose.evidence.custom_functions import class_name, frame_in
from autogradviz.diagnose.finding_text import (
    describe_op,
    in_module,
    short_location,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

    Pair: TypeAlias = tuple[Op, Op]

    from autogradviz.analysis import Op


# The rule finds an op that both runs called with the same inputs and that returned another result:
# it drew random numbers, or ran under another autocast setting.


_LEAST: Final = 2  # operators that both runs must have in common
_BEGIN: Final = 8  # operators of a second run that are looked for in the first
_DTYPE: Final = re.compile(r"\bdtype\b")


@rule(
    "handmade-checkpoint-differs",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="checkpoint_value_mismatch",
)
def custom_recompute(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first custom Function whose recomputation returned other results."""
    again: dict[int, list[Op]] = {}
    nodes = evidence.analysis.graph.nodes
    custom = evidence.analysis.custom_functions
    for op in evidence.analysis.ops if custom else ():
        node_id = op.backward_node_id
        if node_id in custom and op.phase == "backward" and op.region_id is None:
            again.setdefault(node_id, []).append(op)
    forwards: dict[str, list[Op]] = {}
    for node_id, ops in sorted(again.items(), key=lambda pair: nodes[pair[0]].order):
        node = nodes[node_id]
        second = _recomputation(evidence, node, ops)
        if second:
            name = class_name(evidence, node)
            if name not in forwards:
                forwards[name] = _forwards(evidence, name, second)
            pair = _first_different(evidence, _aligned(forwards[name], second))
            if pair is not None:
                yield _handmade_difference(evidence, node, *pair)


def _recomputation(evidence: Evidence, node: Node, ops: list[Op]) -> list[Op]:
    """Return the ops that a custom Function's backward ran, if it recomputes with gradients on.

    Only a custom Function's backward is Python, and only a recomputation creates nodes.
    """
    made = [op for op in ops if op.sequence_nr is not None]
    if not made:
        return []
    name = class_name(evidence, node)
    return [op for op in ops if frame_in(evidence, op, name, "backward") is not None]


def _forwards(evidence: Evidence, name: str, again: list[Op]) -> list[Op]:
    """Return the ops of the forward that a recomputation repeats.

    It is the forward of the recomputing class, or of another class of the program: a pair of
    Functions may divide the work, one that runs forward, and one that recomputes.
    """
    nodes = evidence.analysis.graph.nodes
    others = {class_name(evidence, nodes[n]) for n in evidence.analysis.custom_functions}
    for other in (name, *sorted(others - {name})):
        ops = [
            op
            for op in evidence.analysis.ops
            if op.phase != "backward" and frame_in(evidence, op, other, "forward") is not None
        ]
        if len(_aligned(ops, again)) >= _LEAST:
            return ops
    return []


def _aligned(first: list[Op], second: list[Op]) -> list[Pair]:
    """Return the ops that both runs called, from the first with equal inputs.

    Calls of the same class are distinguished by their inputs.
    """
    begun = next(
        (
            (i, j)
            for j, other in enumerate(second[:_BEGIN])
            for i, op in enumerate(first)
            if op.name == other.name and op.inputs and _same_inputs(op, other)
        ),
        None,
    )
    if begun is None:
        return []
    first, second = first[begun[0] :][: 2 * len(second)], second[begun[1] :]
    matches = match([op.name for op in first], [op.name for op in second], free_tail=True)
    return [(first[x], second[y]) for x, y in matches]


def _first_different(evidence: Evidence, pairs: list[Pair]) -> Pair | None:
    """Return the first pair with different results, if all pairs before it agree."""
    if len(pairs) < _LEAST:
        return None
    for pair in pairs:
        if not _same_inputs(*pair):
            return None
        if _different_results(evidence, *pair):
            return pair
    return None


def _same_inputs(first: Op, second: Op) -> bool:
    """Return whether two calls read the same inputs; inputs they only write do not count."""
    if len(first.inputs) != len(second.inputs):
        return False
    read = [n for n, tensor in enumerate(first.inputs) if tensor not in first.written]
    if first.input_hashes and second.input_hashes:
        pairs = [(first.input_hashes[n], second.input_hashes[n]) for n in read]
        return all(a == b != NO_ID for a, b in pairs)
    return all(first.inputs[n].tensor_id == second.inputs[n].tensor_id for n in read)


def _different_results(evidence: Evidence, first: Op, second: Op) -> bool:
    dtypes = [[t.dtype for t in op.outputs] for op in (first, second)]
    if dtypes[0] != dtypes[1]:
        return True
    hashes = zip(first.output_hashes, second.output_hashes, strict=False)
    drawn = first.seq in evidence.drawing_ops
    return drawn and any(a != b and NO_ID not in {a, b} for a, b in hashes)


def _handmade_difference(evidence: Evidence, node: Node, first: Op, second: Op) -> Draft:
    name = class_name(evidence, node)
    random = first.seq in evidence.drawing_ops
    called = frame_in(evidence, second, name, "backward")
    culprit = called if random else _autocast(called) or called
    elsewhere = culprit != called
    return Draft(
        title=f"{name}.backward runs the forward again, and "
        + ("draws other random numbers" if random else "computes in another dtype"),
        culprit=culprit,
        victim=first,
        explanation=[
            f"{name}{in_module(node.module)} keeps its inputs and runs its forward again in "
            "backward, as a checkpoint does:",
            called,
            f"There {first.name} had the same inputs as in forward, and returned another result:",
            f"  forward:  {describe_op(first)}",
            f"  backward: {describe_op(second)}",
            first,
            "The random state of the forward was not restored."
            if random
            else "Autocast was set differently than in forward"
            + (f", at {short_location(culprit)}:" if elsewhere else "."),
            culprit if elsewhere else "",
            "The gradients belong to values that the loss was not computed from.",
        ],
        fix="y = torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)\n"
        + (
            "# or save torch.get_rng_state() in forward, and set it before the second run"
            if random
            else "# or enter torch.autocast(device, dtype=..., enabled=...) as it was in forward"
        ),
        confidence="likely",
        evidence=(first, second, node),
    )


def _autocast(called: SourceLocation | None) -> SourceLocation | None:
    """Return the line of a backward that enters autocast, preferably without a dtype."""
    if called is None:
        return None
    found = [
        (bool(_DTYPE.search(text)), line, function)
        for line, function, text in source.mentions(called.filename, ("autocast",))
        if function == called.function and "autocast(" in text
    ]
    return source.location(called.filename, *min(found)[1:]) if found else None
