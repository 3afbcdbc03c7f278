"""What two recordings may differ in, and how that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from autogradviz.render.text import as_text, strip_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same."""

    aspect: str  # "steps", "ops", "saved", "writes", "checkpoint", "gradients", "values", "error"
    what: str  # "addmm, forward"
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that differs between two recordings; falsy where nothing does."""

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
            shown = "" if each.aspect == aspect else each.aspect
            aspect = each.aspect
            table.add_row(shown, *map(Text, (each.what, each.before, each.after)))
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
