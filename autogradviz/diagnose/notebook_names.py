"""Findings in a notebook: cells are called as their reader sees them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.finding import Finding


def in_cells(finding: Finding, cells: dict[str, int]) -> Finding:
    """Return a finding with "In [3], line 2" in the place of names that IPython made up.

    Args:
        finding: what was found.
        cells: the number of each cell, by file name.
    """
    return replace(
        finding,
        title=_worded(finding.title, cells),
        explanation=_worded(finding.explanation, cells),
        fix=_worded(finding.fix, cells),
        culprit=_located(finding.culprit, cells),
        victim=_located(finding.victim, cells),
    )


def _located(location: SourceLocation | None, cells: dict[str, int]) -> SourceLocation | None:
    if location is None or location.filename not in cells:
        return location
    return replace(location, cell=cells[location.filename])


def _worded(text: str, cells: dict[str, int]) -> str:
    for filename, cell in cells.items():
        for name in (filename, PurePath(filename).name):
            text = re.sub(re.escape(name) + r":(\d+)", rf"In [{cell}], line \1", text)
    return text
