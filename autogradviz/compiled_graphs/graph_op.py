"""One op, input or output of a graph, as plain values."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.compiled_graphs.source_lines import NO_LINE, Line

if TYPE_CHECKING:
    from collections.abc import Iterable

_VARIABLE: Final = re.compile(r"^[LG]\['(\w+)'\]")
_MEMBER: Final = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
_OWN: Final = ("self.", "self")


class GraphOp(NamedTuple):
    """One op, input or output of a graph."""

    name: str
    op_kind: str  # "call_function", "placeholder", "get_attr", "output"
    target: str
    shape: tuple[int, ...] = ()
    symbolic_shape: str = ""
    dtype: str = ""
    nbytes: int = 0
    is_size: bool = False  # a symbolic number
    line: Line = NO_LINE
    module_name: str = ""
    module_type: str = ""
    arguments: tuple[str, ...] = ()
    sequence_nr: int | None = None  # equal for the ops of one autograd node and their gradients
    tag: str = ""  # "is_forward", "is_backward"
    policy: str = ""
    checkpoint_number: int | None = None
    sums_gradients: bool = False
    description: str = ""


def calls(ops: Iterable[GraphOp]) -> list[GraphOp]:
    """Return the ops of a graph that compute."""
    return [op for op in ops if op.op_kind == "call_function"]


@lru_cache(maxsize=4_096)
def plain_name(name: str) -> str:
    """Return a variable as in source: "attn.qkv.weight" of a module's parameter.

    Dynamo writes ``L['self']._modules['attn']._modules['qkv']._parameters['weight']``.
    """
    plain = _MEMBER.sub(r".\1", _VARIABLE.sub(r"\1", name))
    return plain.removeprefix("self").removeprefix(".") if plain.startswith(_OWN) else plain
