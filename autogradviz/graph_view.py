"""A graph as a picture: ``trace.graph()`` and ``autogradviz.graph(loss)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from autogradviz.analysis import Analysis
from autogradviz.errors import NotAGraphError
from autogradviz.event_log import write_over_own
from autogradviz.gc_control import collector_paused
from autogradviz.scene import build_scene

if TYPE_CHECKING:
    import os

    import torch

    from autogradviz.scene import Scene


class GraphView:
    """One picture of an autograd graph; notebooks show it as it is."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def svg(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        engine: Literal["native", "dot"] = "native",
        theme: Literal["light", "dark"] = "light",
    ) -> str:
        """Return the picture as SVG text, and write it to ``path`` where one is given.

        Args:
            path: where to write. Another SVG there is replaced, nothing else is.
            engine: "native" needs nothing; "dot" lays out with Graphviz.
            theme: colors for a light or a dark page; "native" only.

        Raises:
            GraphTooLargeError: more boxes would be drawn than anybody can read.
            MissingProgramError: ``engine="dot"`` without Graphviz.
            FileExistsAlreadyError: something other than an SVG stands at ``path``.
        """
        if engine == "native":
            from autogradviz.render.svg import render_svg

            text = render_svg(self.scene, theme=theme)
        elif engine == "dot":
            from autogradviz.render.dot import render_dot_svg

            text = render_dot_svg(self.scene)
        else:
            # callers need not be typed
            message = f'engine is "native" or "dot", not {engine!r}'  # type: ignore[unreachable]
            raise ValueError(message)
        if path is not None:
            write_over_own(path, text, "<svg")
        return text

    def dot(self) -> str:
        """Return the graph in Graphviz's language."""
        from autogradviz.render.dot import to_dot

        return to_dot(self.scene)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        summary = self.scene.summary
        return f"<GraphView of {summary.nodes:,} nodes and {summary.edges:,} edges>"


def graph(
    output: Any, model: torch.nn.Module | None = None, *, depth: int | None = None
) -> GraphView:
    """Return the autograd graph behind a tensor, without having recorded it.

    Nothing is unpacked, recomputed or kept: saved tensors are looked at where they lie.

    Args:
        output: a tensor that requires grad, a gradient edge, or lists, tuples or dicts of them.
        model: gives names to parameters.
        depth: as in ``Trace.graph``.

    Raises:
        NotAGraphError: nothing in ``output`` has a graph.

    Example:
        >>> autogradviz.graph(model(x).sum(), model).svg("graph.svg")  # doctest: +SKIP
    """
    from autogradviz.recorder import Recorder, graph_roots

    roots = graph_roots(output)
    if not roots:
        message = (
            f"{type(output).__name__} has no autograd graph: pass a result that requires grad, "
            "computed outside torch.no_grad()"
        )
        raise NotAGraphError(message)
    with collector_paused():
        log = Recorder(ops=False, stacks=False).snapshot(model, roots)
    return GraphView(build_scene(Analysis(log), (), depth=depth, graph_only=True))
