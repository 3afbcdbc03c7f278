"""One call into the autograd engine of PyTorch: its options, and what is open on its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.graph

if TYPE_CHECKING:
    from autogradviz.recorder.engine_interface import Engine
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.user_code_frames import Place


class EngineCall:
    """One call into the autograd engine of PyTorch."""

    def __init__(
        self,
        backward_id: int,
        state: ThreadState,
        engine: Engine,
        *,
        keep_graph: bool,
        limited: bool,
    ) -> None:
        self.backward_id = backward_id
        self.keep_graph = keep_graph
        self.limited = limited  # only the gradients of some inputs are computed
        self.state = state
        self.failed_node: tuple[int, int] | None = None
        """(node, backward) that was running when the engine raised."""
        self._engine = engine
        self.runs_before = engine.run_count()
        self._depths = (len(state.calls), len(state.regions), len(state.marks))
        self.outer: EngineCall | None = None
        """The call whose node made this one."""
        self.callers: tuple[int, list[Place]] | None = None
        """The stack of the call and its id, for threads that work for the call."""

    def interrupted_node(self) -> tuple[int, int] | None:
        """Return the node and backward that were running when the engine raised, None if none."""
        node_id = self._engine.failed_run(self.backward_id)
        return None if node_id is None else (node_id, self.backward_id)

    def restore_thread(self) -> None:
        """Close the modules, regions and nodes that an exception left open on the thread."""
        calls, regions, marks = self._depths
        del self.state.calls[calls:]
        del self.state.regions[regions:]
        del self.state.marks[marks:]
        self._engine.drop_runs(self.runs_before)


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
