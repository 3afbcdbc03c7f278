"""One call into the autograd engine: its options, and the nodes that are hooked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph

if TYPE_CHECKING:
    from autogradviz.recorder.engine.node_tag import NodeTag
    from autogradviz.recorder.thread_state import ThreadState


class EngineCall:
    """One call into the autograd engine."""

    def __init__(self, backward_id: int, state: ThreadState, *, keep_graph: bool) -> None:
        self.backward_id = backward_id
        self.keep_graph = keep_graph
        self.state = state
        self.hooked: list[NodeTag] = []
        self.hooks: list[dict[Any, Any]] = []  # the dict that holds each tag as a hook
        self.threads = {state.number: state}  # on which nodes of this backward ran
        self._depths = (len(state.calls), len(state.regions), len(state.running), len(state.marks))

    def remove_hooks(self) -> None:
        """Remove the hooks of all nodes."""
        for tag, hooks in zip(self.hooked, self.hooks, strict=False):
            hooks.pop(tag, None)
        self.hooked.clear()
        self.hooks.clear()

    def interrupted_node(self) -> tuple[int, int] | None:
        """Return the node and backward that were running when the engine raised, None if none."""
        running = self.state.running
        if len(running) <= self._depths[2]:
            return None
        backward_id, node_id, *_ = running[-1]
        return node_id, backward_id

    def restore_thread(self) -> None:
        """Close the modules, regions and nodes that an exception left open on the thread."""
        calls, regions, running, marks = self._depths
        del self.state.calls[calls:]
        del self.state.regions[regions:]
        del self.state.running[running:]
        del self.state.marks[marks:]


def node_of(output: Any) -> Any:
    """Return the node of a root or an input of a backward, None for a leaf."""
    if isinstance(output, torch.autograd.graph.GradientEdge):
        return output.node
    return output.grad_fn if isinstance(output, torch.Tensor) else None


def engine_options(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's arguments by name: retain_graph, create_graph, inputs, ..."""
    given = dict(zip(("gradients", "retain_graph", "create_graph", "inputs"), arguments))  # noqa: B905
    given.update(named)
    return {
        "retain_graph": bool(given.get("retain_graph")),
        "create_graph": bool(given.get("create_graph")),
        "accumulate_grad": bool(given.get("accumulate_grad", True)),
        "inputs": given.get("inputs") or (),
    }
