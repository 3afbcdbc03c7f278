"""Names of PyTorch's operators, such as "aten.add_.Tensor": namespace, operator and overload."""

from __future__ import annotations

from functools import cache


@cache
def short_op_name(op: str) -> str:
    """Return the name without namespace and overload: "add_"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def packet_name(op: str) -> str:
    """Return the name of all overloads of an operator: "aten.add_"."""
    return op.rpartition(".")[0]
