"""One call into the engine: what it was asked for, and where hooks were put for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph

if TYPE_CHECKING:
    from autogradviz.recorder.engine.node_tag import NodeTag
    from autogradviz.recorder.threads import ThreadState


class Entry:
    """One call into the engine."""

    def __init__(self, backward_id: int, state: ThreadState, *, keep_graph: bool) -> None:
        self.backward_id = backward_id
        self.keep_graph = keep_graph
        self.state = state
        self.hooked: list[NodeTag] = []
        self.hooks: list[dict[Any, Any]] = []  # where each stands
        self.threads = {state.number: state}  # that nodes of this backward ran on
        # Where the thread stood: an exception leaves contexts open behind it.
        self.depths = (
            len(state.calls), len(state.regions), len(state.running), len(state.marks)
        )  # fmt: skip

    def remove_hooks(self) -> None:
        """Take every hook off again."""
        for tag, hooks in zip(self.hooked, self.hooks, strict=False):
            hooks.pop(tag, None)
        self.hooked.clear()
        self.hooks.clear()


def node_of(output: Any) -> Any:
    """Return the node behind a root or an input, None for a leaf."""
    if isinstance(output, torch.autograd.graph.GradientEdge):
        return output.node
    return output.grad_fn if isinstance(output, torch.Tensor) else None


def engine_options(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Name the engine's arguments: gradients, retain_graph, create_graph, inputs."""
    given = dict(zip(("gradients", "retain_graph", "create_graph", "inputs"), arguments))  # noqa: B905
    given.update(named)
    return {
        "retain_graph": bool(given.get("retain_graph")),
        "create_graph": bool(given.get("create_graph")),
        "accumulate_grad": bool(given.get("accumulate_grad", True)),
        "inputs": given.get("inputs") or (),
    }
