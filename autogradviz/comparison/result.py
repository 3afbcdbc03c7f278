"""``Comparison`` and ``Difference``: the result of ``compare``, and its display."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from autogradviz.errors import RecordingStateError
from autogradviz.event_log import write_over_own
from autogradviz.render.terminal_text import as_text, strip_controls
from autogradviz.support.import_rich_keep_random_state import Group, Table, Text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from autogradviz.render.widget import TraceWidget
    from autogradviz.scene import Scene


_WIDEST = 44  # of the names of differences: longer ones are wrapped
_NARROWEST = 10  # of a column of values


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two recordings.

    Attributes:
        aspect: "steps", "ops", "saved", "writes", "memory", "checkpoint", "compiled", "gradients",
            "values", "parity" or "error".
        what: the compared item, "addmm, forward".
        before: its value in the first recording, as text with a unit.
        after: its value in the second recording.

    Example:
        >>> with autogradviz.record(model) as empty:
        ...     pass
        >>> difference = list(autogradviz.compare(empty, trace))[0]
        >>> difference.aspect, difference.what, difference.before, difference.after
        ('ops', 't, forward', '0', '2')
    """

    aspect: str
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two recordings; falsy if there is none.

    In a notebook it displays as the interactive viewer of both recordings, aligned by module and
    source line; elsewhere it prints as a table. Iterating yields the differences.

    Attributes:
        differences: the differences, by aspect.
        titles: the titles of the two recordings.
        note: what could not be compared; "" if that is nothing.

    Example:
        >>> comparison = autogradviz.compare(trace, trace)
        >>> bool(comparison), len(comparison.differences)
        (False, 0)
    """

    differences: tuple[Difference, ...]
    titles: tuple[str, str] = ("before", "after")
    _scenes: Callable[[], tuple[Scene, Scene]] | None = field(
        default=None, repr=False, compare=False
    )
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def widget(self) -> TraceWidget:
        """Return the interactive viewer of both recordings; it opens on the comparison.

        Raises:
            RecordingStateError: if the comparison was not made by ``autogradviz.compare``.

        Example:
            >>> widget = autogradviz.compare(trace, trace).widget()
            >>> widget.select("TanhBackward0")
        """
        from autogradviz.render.widget import TraceWidget
        from autogradviz.trace_method_results.graph_view import GraphView

        before, after = self._both()
        picture = GraphView(after).svg
        return TraceWidget(after, before=before, picture=picture, words=self.__repr__)

    def html(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write an interactive report of both recordings: one HTML file that works offline.

        Args:
            path: the file to write. An earlier report there is replaced.
            overwrite: replace any regular file, not only a report.

        Raises:
            OutputExistsError: if another non-empty file exists.
            RecordingStateError: if the comparison was not made by ``autogradviz.compare``.

        Example:
            >>> autogradviz.compare(trace, trace).html("comparison.html")
        """
        from autogradviz.render.html_pages import REPORT, render_html

        before, after = self._both()
        page = render_html(after, before=before, title=" → ".join(self.titles))
        write_over_own(path, page, REPORT, overwrite=overwrite)

    def _both(self) -> tuple[Scene, Scene]:
        if self._scenes is None:
            message = "the recordings are not known; autogradviz.compare(before, after) keeps them"
            raise RecordingStateError(message)
        return self._scenes()

    def _ipython_display_(self) -> None:
        from autogradviz.render.widget import display_for_cell

        display_for_cell(self.widget())

    def _display_(self) -> TraceWidget:  # marimo calls it
        return self.widget()

    def __rich__(self) -> RenderableType:
        if not self.differences:
            return Text(" ".join(filter(None, ("No differences.", self.note))))
        table = Table(box=None, pad_edge=False)
        table.add_column(style="dim")
        longest = max(len(each.what) for each in self.differences)
        table.add_column(min_width=min(longest, _WIDEST), overflow="fold")
        for title in self.titles:
            table.add_column(Text(title), overflow="fold", min_width=_NARROWEST)
        aspect = ""
        for each in self.differences:
            label = "" if each.aspect == aspect else each.aspect
            aspect = each.aspect
            table.add_row(label, *map(Text, (each.what, each.before, each.after)))
        return strip_controls(Group(table, Text(self.note, style="dim")) if self.note else table)

    def __repr__(self) -> str:
        return as_text(self.__rich__())

    def _repr_html_(self) -> str:
        if not self.differences:
            return f"<p>{' '.join(filter(None, ('No differences.', escape(self.note))))}</p>"
        rows = [
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in ((d.aspect, d.what, d.before, d.after) for d in self.differences)
        ]
        head = "".join(f"<th>{escape(title)}</th>" for title in ("", "", *self.titles))
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"
