"""``Comparison`` and ``Difference``: the result of ``compare``, and its display."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from autogradviz.render.terminal_text import as_text, strip_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two recordings.

    Attributes:
        aspect: "steps", "ops", "saved", "writes", "checkpoint", "compiled", "gradients",
            "values" or "error".
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

    Prints as a table, in notebooks as an HTML table. Iterating yields the differences.

    Attributes:
        differences: the differences, by aspect.
        titles: the titles of the two recordings.

    Example:
        >>> comparison = autogradviz.compare(trace, trace)
        >>> bool(comparison), len(comparison.differences)
        (False, 0)
    """

    differences: tuple[Difference, ...]
    titles: tuple[str, str] = ("before", "after")

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __rich__(self) -> RenderableType:
        if not self.differences:
            return Text("No differences.")
        table = Table(box=None, pad_edge=False)
        table.add_column(style="dim")
        table.add_column(no_wrap=True)
        for title in self.titles:
            table.add_column(Text(title), overflow="fold")
        aspect = ""
        for each in self.differences:
            label = "" if each.aspect == aspect else each.aspect
            aspect = each.aspect
            table.add_row(label, *map(Text, (each.what, each.before, each.after)))
        return strip_controls(table)

    def __repr__(self) -> str:
        return as_text(self.__rich__())

    def _repr_html_(self) -> str:
        if not self.differences:
            return "<p>No differences.</p>"
        rows = [
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in ((d.aspect, d.what, d.before, d.after) for d in self.differences)
        ]
        head = "".join(f"<th>{escape(title)}</th>" for title in ("", "", *self.titles))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
