"""Notebook cells in findings: "In [3], line 2" instead of IPython's file names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.finding import Finding


def with_cell_names(finding: Finding, cells: dict[str, int]) -> Finding:
    """Return a finding with "In [3], line 2" instead of IPython's file names.

    Args:
        finding: a finding.
        cells: the number of each cell, by file name.
    """
    return replace(
        finding,
        title=_rename(finding.title, cells),
        explanation=_rename(finding.explanation, cells),
        fix=_rename(finding.fix, cells),
        culprit=_relocate(finding.culprit, cells),
        victim=_relocate(finding.victim, cells),
    )


def _relocate(location: SourceLocation | None, cells: dict[str, int]) -> SourceLocation | None:
    if location is None or location.filename not in cells:
        return location
    return replace(location, cell=cells[location.filename])


def _rename(text: str, cells: dict[str, int]) -> str:
    for filename, cell in cells.items():
        # The path is absolute, relative to the current directory, or a name alone.
        relative = r"(?:[^\s:]*[/\\])?" + re.escape(PurePath(filename).name)
        for name in (re.escape(filename), relative):
            text = re.sub(rf"(?<![\w.-]){name}:(\d+)", rf"In [{cell}], line \1", text)
    return text
