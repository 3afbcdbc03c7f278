"""The nodes behind what a user passes as the output of a graph."""

from __future__ import annotations

from typing import Any

import torch


def graph_roots(output: Any) -> list[Any]:
    """Return the nodes behind a tensor, a gradient edge, or lists, tuples and dicts of them.

    A leaf has no node, and neither has a view whose base was written in a way that autograd cannot
    differentiate.
    """
    if isinstance(output, torch.autograd.graph.GradientEdge):
        return [output.node]
    if isinstance(output, torch.Tensor):
        try:
            node = output.grad_fn
        except RuntimeError:
            return []
        return [] if node is None else [node]
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [node for part in output for node in graph_roots(part)]
    return []
