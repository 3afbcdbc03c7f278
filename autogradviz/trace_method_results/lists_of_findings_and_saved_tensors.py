"""Lists of findings and of saved tensors that print as text and display as HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final, SupportsIndex, overload

from autogradviz.analysis import SavedTensor
from autogradviz.analysis.formatting import format_bytes
from autogradviz.causes.answers_as_html import finding_card, table
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.finding_text import describe_tensor, slot_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_ROWS: Final = 60
"""Saved tensors that are printed; the rest are counted."""

_HEADS: Final = ("saved tensor", "contents", "version", "bytes", "line")


class Findings(list[Finding]):
    """A list of findings. It prints as text; notebooks display it as cards with source lines."""

    def __init__(self, findings: Iterable[Finding] = (), note: str = "") -> None:
        """Make a list.

        Args:
            findings: the findings.
            note: what else went wrong; printed if there is no finding.
        """
        super().__init__(findings)
        self._note = note

    @overload
    def __getitem__(self, index: SupportsIndex) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> Findings: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Finding | Findings:
        if isinstance(index, slice):
            return Findings(super().__getitem__(index))
        return super().__getitem__(index)

    def __repr__(self) -> str:
        from autogradviz.render.terminal_text import as_text, render_findings

        return as_text(render_findings(self, self._note))

    def _repr_html_(self) -> str:
        from autogradviz.render.terminal_text import no_findings

        return "".join(finding_card(each) for each in self) or (
            f"<p>{html.escape(no_findings(self._note))}</p>"
        )


class SavedTensors(list[SavedTensor]):
    """A list of saved tensors. It prints and displays as a table, the first ones only."""

    def __init__(self, saved: Iterable[SavedTensor], nodes: Mapping[int, str]) -> None:
        """Make a list.

        Args:
            saved: the saved tensors.
            nodes: the names of the nodes, by id.
        """
        super().__init__(saved)
        self._nodes = nodes

    def _row(self, saved: SavedTensor) -> tuple[str, ...]:
        node = None if saved.node_id is None else self._nodes.get(saved.node_id)
        return (
            slot_name(saved, node),
            describe_tensor(saved.tensor),
            "" if saved.version is None else f"{saved.version}",
            format_bytes(saved.tensor.nbytes),
            "" if saved.location is None else f"{saved.location}",
        )

    def _rows(self) -> tuple[list[tuple[str, ...]], str]:
        """Return the rows of the table, and a line about those left out."""
        left = len(self) - MOST_ROWS
        return [self._row(each) for each in self[:MOST_ROWS]], f"{left:,} more" if left > 0 else ""

    def __repr__(self) -> str:
        if not self:
            return "No saved tensors."
        rows, left = self._rows()
        widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (_HEADS, *rows)
        ]
        return "\n".join([*lines, left] if left else lines)

    def _repr_html_(self) -> str:
        rows, left = self._rows()
        return table(_HEADS, rows) + (f"<p>{left}</p>" if left else "")
