"""Bytes of recomputed values that are alive during the backward of a compiled region."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from autogradviz.scene.compiled.source_line_columns import is_view

if TYPE_CHECKING:
    from autogradviz.analysis.compiled_region_types import CompiledRegion


def recomputed_alive(region: CompiledRegion) -> list[int]:
    """Return the recomputed bytes that are alive while each backward op runs, in their order.

    A recomputed value is alive from its op to the last op that uses it or a view of it.
    """
    ops = region.backward_ops
    base: dict[str, int] = {}  # index of the op that made the storage
    last_use: dict[int, int] = {}
    for at, op in enumerate(ops):
        for name in op.arguments:
            if name in base:
                last_use[base[name]] = at
        is_part = is_view(op) and op.arguments and op.arguments[0] in base
        if is_part:
            base[op.name] = base[op.arguments[0]]
        elif not is_view(op):  # a view of an input takes no bytes
            base[op.name] = at
    changes = [0] * (len(ops) + 1)
    for at, op in enumerate(ops):
        if op.cause is not None and base.get(op.name) == at:
            changes[at] += op.nbytes
            changes[last_use.get(at, at) + 1] -= op.nbytes
    return list(accumulate(changes[:-1]))
