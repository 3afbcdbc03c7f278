"""``GraphView``: an autograd graph as a picture, and ``graph`` for one without a recording."""

from __future__ import annotations

import mimetypes
import os
from typing import TYPE_CHECKING, Any, Literal, overload

from autogradviz.analysis import Analysis
from autogradviz.errors import NotAGraphError, UnknownFormatError
from autogradviz.event_log import write_over_own
from autogradviz.recording_options import RecordingOptions
from autogradviz.scene import build_scene
from autogradviz.support.locks_gc_and_stderr import collector_paused

if TYPE_CHECKING:
    import torch

    from autogradviz.scene import Scene


class GraphView:
    """A picture of an autograd graph; notebooks display it as SVG.

    ``Trace.graph`` and ``autogradviz.graph`` return it.

    Example:
        >>> view = autogradviz.graph(model(x).sum(), model)
        >>> view
        <GraphView of ... nodes and ... edges>
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @overload
    def svg(
        self,
        path: None = None,
        *,
        engine: Literal["native", "dot"] = "native",
        theme: Literal["light", "dark"] = "light",
        width_mm: float | None = None,
        overwrite: bool = False,
    ) -> str: ...
    @overload
    def svg(
        self,
        path: str | os.PathLike[str],
        *,
        engine: Literal["native", "dot"] = "native",
        theme: Literal["light", "dark"] = "light",
        width_mm: float | None = None,
        overwrite: bool = False,
    ) -> None: ...
    def svg(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        engine: Literal["native", "dot"] = "native",
        theme: Literal["light", "dark"] = "light",
        width_mm: float | None = None,
        overwrite: bool = False,
    ) -> str | None:
        """Return the picture as SVG text, or write it to a file.

        Args:
            path: write the text to this file, and return None. An earlier SVG there is replaced.
            engine: "native" needs no other program; "dot" lays the graph out with Graphviz.
            theme: colors for light or dark pages; "native" only.
            width_mm: width of a column of a paper, for example 84; "native" only. The text is 6 pt
                high or more if the graph fits; badges that have no room are left out. There is no
                title and nothing to click, and a version is written only where it changes.
            overwrite: replace any regular file, not only an SVG.

        Raises:
            ValueError: if there is no such engine or theme, or the width is not positive.
            GraphTooLargeError: if more boxes are open than the engine can draw.
            MissingProgramError: if ``engine`` is "dot" and Graphviz is not installed.
            OutputExistsError: if ``path`` is another non-empty file.
            UnknownFormatError: if the name of ``path`` is that of another kind of picture.

        Example:
            >>> trace.graph().svg("graph.svg")
            >>> trace.graph().svg("figure.svg", width_mm=84)
        """
        if engine == "native":
            from autogradviz.render.svg.draw_graph import render_svg

            text = render_svg(self._scene, theme=theme, width_mm=width_mm)
        elif engine == "dot":
            from autogradviz.render.graphviz import render_dot_svg

            text = render_dot_svg(self._scene)
        else:
            # callers need not be typed
            message = f'engine is "native" or "dot", not {engine!r}'  # type: ignore[unreachable]
            raise ValueError(message)
        if path is None:
            return text
        kind = mimetypes.guess_type(os.fspath(path))[0] or ""
        if kind.startswith("image/") and kind != "image/svg+xml":
            message = f"svg() writes SVG, and {os.fspath(path)} is no .svg; convert the SVG file"
            raise UnknownFormatError(message)
        write_over_own(path, text, "<svg", overwrite=overwrite)
        return None

    def dot(self) -> str:
        """Return the graph as Graphviz source.

        Raises:
            GraphTooLargeError: if more than 5,000 boxes are open.

        Example:
            >>> trace.graph(depth=0).dot().splitlines()[0]
            'digraph autograd {'
        """
        from autogradviz.render.graphviz import to_dot

        return to_dot(self._scene)

    def _repr_svg_(self) -> str:
        from autogradviz.render.svg.themes_and_primitives import fit_into_cell

        return fit_into_cell(self.svg())

    def __repr__(self) -> str:
        summary = self._scene.summary
        return f"<GraphView of {summary.nodes:,} nodes and {summary.edges:,} edges>"


def graph(
    output: Any,
    model: torch.nn.Module | None = None,
    *,
    depth: int | None = None,
    title: str | None = None,
) -> GraphView:
    """Return the autograd graph of a tensor, without a recording.

    Saved tensors are read where autograd stores them; none is unpacked or recomputed, and none is
    kept alive.

    Args:
        output: a tensor of any shape that requires grad, a gradient edge, or lists, tuples or
            dicts of them.
        model: gives names to parameters.
        depth: how many levels of modules are open, as for ``Trace.graph``.
        title: the title of the picture, by default the class name of ``model``.

    Raises:
        NotAGraphError: if nothing in ``output`` has an autograd graph.

    Example:
        >>> weight = torch.ones(3, requires_grad=True)
        >>> autogradviz.graph((weight * 2).sum())
        <GraphView of 3 nodes and 2 edges>
    """
    from autogradviz.recorder import Recorder, graph_roots

    roots = graph_roots(output)
    if not roots:
        raise NotAGraphError(_why_no_graph(output))
    options = RecordingOptions(ops=False, stacks=False)
    with collector_paused():
        log = Recorder(options).record_graph(model, roots)
    scene = build_scene(Analysis(log), (), title=title, depth=depth, graph_only=True)
    return GraphView(scene)


def _why_no_graph(output: object) -> str:
    """Return the message about an argument of ``graph`` in which there is no graph."""
    import torch

    name = type(output).__name__
    if isinstance(output, torch.nn.Module):
        return f"{name} is a module, and the result of a call has a graph: graph(model(x), model)"
    if isinstance(output, torch.Tensor):
        why = "it was computed under torch.no_grad(), was detached, or depends on no parameter"
        return f"the {name} has no autograd graph: {why}"
    return f"{name} has no autograd graph: pass a tensor that requires grad, or a list of them"
