"""``FlameGraphView``: saved memory or time by module, line, and tensor or op."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

from autogradviz.analysis.flame_graph import build_flame_rows, build_frames
from autogradviz.event_log import write_over_own

if TYPE_CHECKING:
    import os

    import plotly.graph_objects as go

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.flame_graph import FlameFrame, FlameKind

TITLES = {"memory": "Saved memory at the peak", "time": "Time"}


class FlameGraphView:
    """A flame graph; notebooks display it as SVG. ``Trace.flame_graph`` returns it.

    Example:
        >>> trace.flame_graph("memory")
        <FlameGraphView of 96 B held at the peak>
    """

    def __init__(
        self, analysis: Analysis, kind: FlameKind, title: str, *, merge_blocks: bool = True
    ) -> None:
        if kind not in TITLES:
            message = f'kind is "memory" or "time", not {kind!r}'
            raise ValueError(message)
        self._analysis = analysis
        self._kind = kind
        self._merge_blocks = merge_blocks
        self._title = f"{TITLES[kind]}, {title}"

    @cached_property
    def _root(self) -> FlameFrame:
        return build_frames(build_flame_rows(self._analysis, self._kind), merge=self._merge_blocks)

    @overload
    def svg(
        self,
        path: None = None,
        *,
        theme: Literal["light", "dark"] = "light",
        overwrite: bool = False,
    ) -> str: ...
    @overload
    def svg(
        self,
        path: str | os.PathLike[str],
        *,
        theme: Literal["light", "dark"] = "light",
        overwrite: bool = False,
    ) -> None: ...
    def svg(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        theme: Literal["light", "dark"] = "light",
        overwrite: bool = False,
    ) -> str | None:
        """Return the picture as SVG text, or write it to a file.

        Args:
            path: write the text to this file, and return None. An earlier SVG there is replaced.
            theme: colors for light or dark pages.
            overwrite: replace any regular file, not only an SVG.

        Raises:
            OutputExistsError: if ``path`` is another non-empty file.

        Example:
            >>> trace.flame_graph("time").svg("time.svg")
        """
        from autogradviz.render.svg.flame_graph import render_flame_svg

        text = render_flame_svg(self._root, self._kind, self._title, theme=theme)
        if path is None:
            return text
        write_over_own(path, text, "<svg", overwrite=overwrite)
        return None

    def plot(self) -> go.Figure:
        """Return a plotly figure; a click on a frame zooms in.

        Example:
            >>> trace.flame_graph("memory").plot().write_html("memory.html")
        """
        from autogradviz.render.plotly_figures import plot_flame_graph

        return plot_flame_graph(self._root, self._kind, self._title)

    def _repr_svg_(self) -> str:
        from autogradviz.render.svg.themes_and_primitives import fit_into_cell

        return fit_into_cell(self.svg())

    def __repr__(self) -> str:
        from autogradviz.render.svg.flame_graph import format_value

        what = "held at the peak" if self._kind == "memory" else "of self time"
        return f"<FlameGraphView of {format_value(self._root.value, self._kind)} {what}>"
