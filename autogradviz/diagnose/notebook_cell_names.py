"""Notebook cells in facts: "In [3], line 2" instead of IPython's file names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.fact import Fact


def with_cell_names(fact: Fact, cells: dict[str, int]) -> Fact:
    """Return a fact with "In [3], line 2" instead of IPython's file names.

    Args:
        fact: a fact.
        cells: the number of each cell, by file name.
    """
    if not cells:
        return fact
    return replace(
        fact,
        title=_rename(fact.title, cells),
        effect=_rename(fact.effect, cells),
        explanation=[
            _rename(part, cells) if isinstance(part, str) else _relocate(part, cells)
            for part in fact.explanation
        ],
        fix=_rename(fact.fix, cells),
        culprit=_relocate(fact.culprit, cells),
        victim=_relocate(fact.victim, cells),
        others=tuple(filter(None, (_relocate(each, cells) for each in fact.others))),
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
