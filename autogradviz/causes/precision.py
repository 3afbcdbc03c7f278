"""Constants that are so large that a sum with them keeps few digits of the other operand."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.weights import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph

_SUMS: Final = frozenset({"add", "sub", "rsub", "add_", "sub_"})
_BITS: Final = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""The bits after the leading one of each dtype."""
_LEAST_CONSTANT: Final = 1e4
_LEAST_STEP: Final = 2.0**-7  # between neighboring results; values of networks are about 1


def find_lost_precision(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line that adds a large number to what a loss is computed from."""
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    for index in graph.slice_ops:
        if graph.op_names[index] in _SUMS and len(graph.inputs[index]) == 1:
            place = graph.analysis.location(graph.stacks[index])
            if place is not None and graph.is_users(index):
                groups[place].append(index)
    for place, ops in groups.items():
        dtype = graph.analysis.tensors[graph.inputs[ops[0]][0]].dtype
        largest = max(map(abs, _added_numbers(place)), default=0.0)
        if largest < _LEAST_CONSTANT or dtype not in _BITS:
            continue
        step = 2.0 ** (math.floor(math.log2(largest)) - _BITS[dtype])
        if step >= _LEAST_STEP:
            yield _fact(graph, place, ops, f"{largest:,g}", f"{step:g}", dtype)


def _fact(
    graph: CausalGraph,
    place: SourceLocation,
    ops: list[int],
    number: str,
    step: str,
    dtype: str,
) -> Fact:
    behind = graph.parameters_behind(ops[0])
    share = graph.share(behind)
    return Fact(
        mechanism="value",
        culprit=place,
        effect=f"a sum with {number} rounds {dtype} values to multiples of {step}, "
        f"{plural(len(ops), 'time')}; {plural(len(behind), 'parameter')} ({percent(share)} of the "
        "elements) are behind it",
        weight=weight("rounded sum", share),
        explanation=[
            "A large number is added to a value that the loss is computed from:",
            place,
            f"Next to {number}, neighboring numbers of {dtype} are {step} apart: smaller "
            "differences are lost, also if the number is subtracted again.",
        ],
        parameters=tuple(sorted(behind)),
        share=share,
        events=(graph.op_seqs[ops[0]],),
        slug="precision-lost",
        fix="# leave the large number out, or compute this line in float64",
    )


def _added_numbers(place: SourceLocation) -> Iterator[float]:
    """Yield the finite numbers that the statement of a line adds or subtracts."""
    for statement in source.simple_statements(place):
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                yield from filter(None, map(_number, (node.left, node.right)))
            elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
                yield from filter(None, [_number(node.value)])


def _number(node: ast.expr) -> float | None:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    value = getattr(inner, "value", None) if isinstance(inner, ast.Constant) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < math.inf else None  # type: ignore[arg-type]
