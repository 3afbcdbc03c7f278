"""Operator calls with their tensors, modules and source lines."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.types import Op
from autogradviz.events import ArgumentsSeen, OpCalled, RegionEntered, TensorSeen
from autogradviz.support.fast_dataclass_constructor import maker
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_to_nodes import OpNodeMatches
    from autogradviz.event_log.stacks import Stacks

_make_op: Callable[..., Op] = maker(Op)


def build_ops(
    log: Log,
    tensors: Tensors,
    stacks: Stacks,
    matches: OpNodeMatches,
    call_modules: dict[int | None, str],
) -> tuple[Op, ...]:
    """Return all operator calls, oldest first.

    A recomputed op with no user code between it and checkpoint gets the line that called
    checkpoint, as in the forward, and not the line that called backward.
    """
    regions = {event.region_id: event.stack_id for event in log.of(RegionEntered)}
    tensor = tensors.__getitem__

    def location(stack_id: int | None, region_id: int | None) -> SourceLocation | None:
        """Return the line of a recomputed op."""
        inside = stacks.location_inside(stack_id)
        if inside is not None or region_id is None:
            return inside
        return stacks.location(regions.get(region_id, stack_id))

    def column(name: str) -> list[Any]:
        return log.column(OpCalled, name)

    location_of = {each: stacks.location(each) for each in set(column("stack_id"))}
    names = {op: short_op_name(op) for op in set(column("op"))}
    places = zip(column("stack_id"), column("region_id"), column("recompute_id"), strict=True)
    ops = map(
        _make_op,  # in the order of its fields: keywords take half as long again
        column("seq"),
        column("time_ns"),
        column("thread"),
        column("duration_ns"),
        map(names.__getitem__, column("op")),
        column("op"),
        column("phase"),
        [tuple(map(tensor, ids)) for ids in column("inputs")],
        column("input_versions"),
        [tuple(map(tensor, ids)) for ids in column("outputs")],
        [tuple(map(tensor, ids)) if ids else () for ids in column("written")],
        column("input_hashes"),
        column("output_hashes"),
        column("sequence_nr"),
        map(matches.node_of_op.get, column("seq")),
        column("node_id"),
        [call_modules.get(call_id, "") for call_id in column("call_id")],
        column("region_id"),
        column("recompute_id"),
        column("failed"),
        [
            location_of[stack_id] if recompute_id is None else location(stack_id, region_id)
            for stack_id, region_id, recompute_id in places
        ],
        column("stack_id"),
    )
    return tuple(ops)


def argument_texts(log: Log) -> dict[int | None, str]:
    """Return the recorded arguments of ops that are no tensors, by id; redacted ones are none."""
    rows = log.fields(ArgumentsSeen, "arguments_id", "arguments")
    return {number: text for number, text in rows if text.startswith("{")}


MEANS: Final = frozenset({
    "mean", "nll_loss_forward", "nll_loss2d_forward", "mse_loss", "l1_loss", "smooth_l1_loss",
    "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
})  # fmt: skip
"""Ops whose result is a mean if it is a single number, up to the argument ``reduction``."""

_INFINITE: Final = {"f:inf": math.inf, "f:-inf": -math.inf}
"""Numbers that JSON does not have, as ``ArgumentsSeen`` writes them."""


class OpArguments:
    """The arguments of ops that are no tensors, by the event of an op; {} if they are unknown.

    Equal texts are read once.
    """

    def __init__(self, log: Log) -> None:
        texts = argument_texts(log)
        ids = dict(log.fields(OpCalled, "seq", "arguments_id"))

        @cache
        def values(number: int | None) -> dict[str, Any]:
            try:
                found: dict[str, Any] = json.loads(texts.get(number, "{}"))
            except ValueError:  # a damaged file
                return {}
            return found

        @cache
        def numbers(number: int | None) -> dict[str, float]:
            given = ((key, as_number(value)) for key, value in values(number).items())
            return {key: number for key, number in given if number is not None}

        self._ids, self._values, self._numbers = ids, values, numbers

    def values(self, seq: int) -> dict[str, Any]:
        """Return all arguments; do not change them."""
        return self._values(self._ids.get(seq))

    def numbers(self, seq: int) -> dict[str, float]:
        """Return those that are numbers, or lists of one; do not change them."""
        return self._numbers(self._ids.get(seq))


def as_number(value: object) -> float | None:
    """Return an argument of an op as a number: also ``[1]``, and "f:inf"; None if it is none."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def is_view(op: Op) -> bool:
    """Return whether an op writes nothing and returns only views of its inputs."""
    if op.written or not op.outputs:
        return False
    given = {tensor.storage_id for tensor in op.inputs} - {None}
    return given.issuperset([tensor.storage_id for tensor in op.outputs])


def find_creators(log: Log, ops: tuple[Op, ...]) -> dict[int, Op]:
    """Return the op that created each storage: the first to output it without it as an input.

    A storage may have views before the op that creates it: the pack hook of a saved result runs
    inside the op.
    """
    storage_of = dict(log.fields(TensorSeen, "tensor_id", "storage_id")).get
    creators: dict[int | None, int] = {}
    read: set[int | None] = set()
    rows = log.fields(OpCalled, "inputs", "outputs", "written")
    for place, (given, made, written) in enumerate(rows):
        inputs = set(map(storage_of, given))
        if written:
            inputs.update(map(storage_of, written))
        outputs = set(map(storage_of, made))
        if outputs.isdisjoint(inputs):
            read |= inputs
        else:
            read |= inputs - outputs
            outputs -= inputs
        for storage_id in outputs:
            if storage_id not in creators and storage_id not in read:
                creators[storage_id] = place
    return {storage_id: ops[at] for storage_id, at in creators.items() if storage_id is not None}
