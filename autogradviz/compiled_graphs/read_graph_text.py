"""Graphs of compilers, read from their text."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz.compiled_graphs.user_line_in_stack_text import NO_LINE, Line
from autogradviz.support.op_names import short_op_name
from autogradviz.support.source_lines_and_libraries import is_library_anywhere

if TYPE_CHECKING:
    from collections.abc import Iterable


# --- one op, input or output of a graph, as plain values ------------------------------------------


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


# --- the ops of a graph out of the text that ``GraphModule.print_readable`` prints ----------------
#
# AOTAutograd's cache keeps graphs only as text. A line above an op says where it comes from, and
# holds for the ops below it.


_COMMENT: Final = re.compile(
    r"^\s*# ?(?P<notes>.*?)File: (?P<file>.+?):(?P<line>\d+) in (?P<function>.+?), "
    r"code: (?P<code>.*)$"
)
_CALL: Final = re.compile(r'^\s*(?P<name>\w+)(?:: "(?P<type>[^"]*)")? = (?P<value>.*?)(?:;  .*)?$')
_INPUT: Final = re.compile(r'^\s*(?P<name>\w+)(?:: "(?P<type>[^"]*)")?,?(?:\s+# .*)?$')
_TYPE: Final = re.compile(r"^(?P<dtype>[a-z]+\d+[a-z0-9]*)\[(?P<sizes>[^\]]*)\]")
_NAME: Final = re.compile(r"\b[a-z_]\w*\b")
_TARGET: Final = re.compile(r"[\w.]+")
_ITEM: Final = re.compile(r"^\w+\[\d+\]$")
_SUM: Final = "Gradient addition node"
_SIZE: Final = re.compile(r"Sym\((.*)\)")
_CHECKPOINT: Final = re.compile(r"ac_graph_id: (\d+)(?: - (\w+))?")
_POLICY: Final = re.compile(r"recompute: (\w+)")

_DTYPES: Final = {
    "f64": ("float64", 8), "f32": ("float32", 4), "f16": ("float16", 2), "bf16": ("bfloat16", 2),
    "i64": ("int64", 8), "i32": ("int32", 4), "i16": ("int16", 2), "i8": ("int8", 1),
    "u8": ("uint8", 1), "u16": ("uint16", 2), "u32": ("uint32", 4), "u64": ("uint64", 8),
    "b8": ("bool", 1), "c32": ("complex32", 4), "c64": ("complex64", 8), "c128": ("complex128", 16),
    "f8e4m3fn": ("float8_e4m3fn", 1), "f8e5m2": ("float8_e5m2", 1),
}  # fmt: skip
"""The abbreviations of data types, with their names and bytes."""


def read_graph_text(text: str) -> tuple[GraphOp, ...]:
    """Return the ops of a printed graph, in its order; none if the text is not one."""
    return tuple(_Reader().read(text))


class _Reader:
    def __init__(self) -> None:
        self._ops: list[GraphOp] = []
        self._names: set[str] = set()
        self._line = NO_LINE
        self._notes = ""
        self._in_inputs = False
        self._in_body = False
        self._in_output = False

    def read(self, text: str) -> list[GraphOp]:
        """Return the ops of a text."""
        for line in text.splitlines():
            if not self._in_inputs and not self._in_body:
                self._read_head(line)
            elif self._in_inputs:
                self._read_input(line)
            else:
                self._read_body(line)
        return self._ops

    def _read_head(self, line: str) -> None:
        if not line.strip().startswith("def forward("):
            return
        inner = line.partition("def forward(")[2].rstrip()
        if not inner.endswith("):"):
            self._in_inputs = True
            return
        self._in_body = True
        for part in inner.removesuffix("):").split(", "):
            name = part.partition(":")[0].strip()
            if name != "self":
                self._add(GraphOp(name, "placeholder", name))

    def _read_input(self, line: str) -> None:
        if line.strip().startswith(")"):
            self._in_inputs, self._in_body = False, True
            return
        found = _INPUT.match(line)
        if found and found["name"] != "self":
            name = found["name"]
            self._add(GraphOp(name, "placeholder", name, **_typed(found["type"])))

    def _read_body(self, line: str) -> None:
        stripped = line.strip()
        if stripped.startswith("#"):
            self._read_comment(line)
        elif stripped.startswith("return"):
            self._in_output = True
            self._add(GraphOp("output", "output", "output", arguments=self._known(stripped)))
        elif self._in_output:
            last = self._ops[-1]
            self._ops[-1] = last._replace(arguments=(*last.arguments, *self._known(stripped)))
        elif found := _CALL.match(line):
            self._read_call(found)

    def _read_comment(self, line: str) -> None:
        found = _COMMENT.match(line)
        self._notes = found["notes"] if found else line
        self._line = NO_LINE
        if found:
            file = found["file"]
            self._line = Line(
                file,
                int(found["line"]),
                found["function"],
                found["code"],
                is_library_anywhere(file),
            )

    def _read_call(self, found: re.Match[str]) -> None:
        name, value = found["name"], found["value"]
        if value in {name, "None"}:  # PyTorch deletes a variable
            return
        target = _TARGET.match(value)
        text = value if target is None else target[0].removeprefix("torch.ops.")
        checkpoint = _CHECKPOINT.search(self._notes)
        policy = _POLICY.search(self._notes)
        self._add(
            GraphOp(
                name,
                "call_function",
                ITEM if _ITEM.match(value) else text,
                **_typed(found["type"]),
                line=self._line,
                arguments=self._known(value.partition("(")[2] or value),
                policy=(checkpoint and checkpoint[2]) or (policy[1] if policy else "") or "",
                checkpoint_number=int(checkpoint[1]) if checkpoint else None,
                sums_gradients=_SUM in self._notes,
            )
        )

    def _known(self, text: str) -> tuple[str, ...]:
        """Return the names in a text that ops above have, each once."""
        return tuple(dict.fromkeys(name for name in _NAME.findall(text) if name in self._names))

    def _add(self, op: GraphOp) -> None:
        self._ops.append(op)
        self._names.add(op.name)


def _typed(annotation: str | None) -> dict[str, Any]:
    """Return the fields that an annotation like ``f32[2, s0][4, 1]cpu`` gives."""
    size = _SIZE.match(annotation or "")
    if size:
        return {"symbolic_shape": size[1], "dtype": "SymInt", "is_size": True}
    found = _TYPE.match(annotation or "")
    if found is None:
        return {}
    dtype, width = _DTYPES.get(found["dtype"], (found["dtype"], 0))
    sizes = [each.strip() for each in found["sizes"].split(",") if each.strip()]
    if not all(each.isdigit() for each in sizes):
        return {
            "shape": tuple([int(each) if each.isdigit() else -1 for each in sizes]),
            "symbolic_shape": f"[{', '.join(sizes)}]",
            "dtype": dtype,
        }
    shape = tuple(map(int, sizes))
    return {"shape": shape, "dtype": dtype, "nbytes": prod(shape) * width}


# --- the names that compilers give to the values of their graphs ----------------------------------


INPUT: Final = "primals_"
"""The inputs of forward graphs have this prefix and a number from 1 on."""

TANGENT: Final = "tangents"
"""The inputs of a backward graph with this prefix are gradients."""

ITEM: Final = "_operator.getitem"
"""The target of an op that takes one of the results of another."""

_PACKED: Final = re.compile(r"_hook_\d+$")


def is_packed(name: str) -> bool:
    """Return whether a value is what an inlined pack hook returned: "addmm_hook_0"."""
    return _PACKED.search(name) is not None


def unpacked_name(name: str) -> str:
    """Return the name of the value that an inlined pack hook took: "addmm"."""
    return _PACKED.sub("", name)


# --- ops that compute nothing, by their names: their results are views of an input ----------------


_SEVERAL: Final = frozenset({"getitem", "split", "split_with_sizes", "unbind"})
"""Ops whose result is one of several views, or all of them."""

_VIEWS: Final = _SEVERAL | {
    *("alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "narrow", "permute"),
    *("reshape", "_reshape_alias", "select", "slice", "squeeze", "t", "transpose", "unfold"),
    *("unsqueeze", "_unsafe_view", "view", "view_as_complex", "view_as_real"),
}
"""Names without namespace and overload."""

_VIEW_NODES: Final = frozenset(name.replace("_", "") for name in _VIEWS - _SEVERAL)
_NODE: Final = re.compile(r"_?(\w+?)(Copy)?Backward\d*")


@cache
def is_view(target: str) -> bool:
    """Return whether a target is such an op: "aten.permute.default", "_operator.getitem"."""
    return short_op_name(target) in _VIEWS


@cache
def is_view_node(name: str) -> bool:
    """Return whether an autograd node is that of such an op with one result: "TBackward0"."""
    match = _NODE.fullmatch(name)
    return match is not None and match[1].lower() in _VIEW_NODES
