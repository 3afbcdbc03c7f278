"""The ops of a live ``GraphModule`` as plain values.

Nothing here may add a guard: a ``SymInt`` is never compared or converted, only its text and its
hint are read. PyTorch changes and strips the graphs later, so all is read at once.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, NamedTuple

import torch

from autogradviz.compiled_graphs.read_graph_text import GraphOp, plain_name
from autogradviz.compiled_graphs.user_line_in_stack_text import innermost_user_line
from autogradviz.events import NO_ID
from autogradviz.recorder.torch_internals.private_api import OpOverload, shape_of

_Tensor: Final = torch.Tensor


class _Value(NamedTuple):
    shape: tuple[int, ...]
    symbolic_shape: str
    dtype: str
    nbytes: int
    is_size: bool


_NOTHING: Final = _Value((), "", "", 0, is_size=False)


def read_graph(graph_module: Any) -> tuple[GraphOp, ...]:
    """Return the ops of a graph, in its order."""
    return tuple([_read_node(node) for node in graph_module.graph.nodes])


def _read_node(node: Any) -> GraphOp:
    meta = node.meta
    value = _describe(meta.get("val", meta.get("example_value")))
    modules = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    module_name, module_type = _module(next(reversed(modules.values()), None))
    policy = meta.get("recompute")
    return GraphOp(
        node.name,
        node.op,
        target_text(node.target),
        *value,
        innermost_user_line(meta.get("stack_trace")),
        module_name,
        module_type,
        tuple([each.name for each in node.all_input_nodes]),
        meta.get("seq_nr"),
        meta.get("partitioner_tag") or "",
        "" if policy is None else policy.name,
        meta.get("ac_graph_id"),
        bool(meta.get("is_gradient_acc")),
        "" if node.op == "output" else str(meta.get("desc") or ""),
    )


def _module(entry: Any) -> tuple[str, str]:
    """Return the name and the class of an entry of a stack of modules."""
    if not isinstance(entry, (tuple, list)) or not entry:
        return "", ""
    kind = entry[1] if len(entry) > 1 else ""
    name = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
    return plain_name(str(entry[0])), name


def target_text(target: Any) -> str:
    """Return a target as text: "aten.mm.default", "_operator.getitem", "primals_1"."""
    if isinstance(target, (str, OpOverload)):
        return str(target)
    module, name = getattr(target, "__module__", ""), getattr(target, "__name__", "")
    return f"{module}.{name}".strip(".") or str(target)


def _describe(value: Any) -> _Value:
    if isinstance(value, _Tensor):
        return _describe_tensor(value)
    if isinstance(value, (tuple, list)):
        parts = [_describe(part) for part in value]
        return _NOTHING._replace(nbytes=sum(part.nbytes for part in parts))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _Value((), str(value), type(value).__name__, 0, is_size=True)
    return _NOTHING


def _describe_tensor(value: Any) -> _Value:
    sizes = tuple(shape_of(value))
    shape = tuple([_hint(size) for size in sizes])
    symbolic = any(type(size) is not int for size in sizes)
    text = f"[{', '.join(map(str, sizes))}]" if symbolic else ""
    nbytes = 0 if NO_ID in shape else prod(shape) * value.dtype.itemsize
    return _Value(shape, text, str(value.dtype).removeprefix("torch."), nbytes, is_size=False)


def _hint(size: Any) -> int:
    """Return the size at the first call, NO_ID where it is unknown."""
    if type(size) is int:
        return size
    node = size.node
    hint = node._hint if hasattr(node, "_hint") else getattr(node, "hint", None)  # noqa: SLF001
    return hint if type(hint) is int else NO_ID
