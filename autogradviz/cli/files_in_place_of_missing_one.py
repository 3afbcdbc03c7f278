"""The end of a message about a missing file: the files that may be meant."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

MOST_NAMES: Final = 3


def files_in_place_of(error: OSError) -> str:
    """Return the end of the message of an error, "" if no file is missing."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str):
        return ""
    return describe_similar_files(Path(error.filename))


def describe_similar_files(path: Path, suffix: str = ".agv") -> str:
    """Return the files that may be meant by one that is missing, or that its folder is missing.

    Args:
        path: of the missing one.
        suffix: of the files that the command reads: that of a name without one.
    """
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent}"
    whole = path.with_name(f"{path.name}{suffix}")
    if whole.is_file():
        return f"; did you mean {whole.name}?"
    if path.suffix not in {".agv", ".py"}:
        return ""
    names = sorted(each.name for each in path.parent.glob(f"*{path.suffix}"))
    stems = {name.removesuffix(path.suffix): name for name in names}
    near = [stems[each] for each in difflib.get_close_matches(path.stem, stems, MOST_NAMES)]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if names:
        more = len(names) - MOST_NAMES
        others = f" and {more:,} other{'s' if more > 1 else ''}" if more > 0 else ""
        return f"; the folder has {', '.join(names[:MOST_NAMES])}{others}"
    return "; autogradviz run SCRIPT.py writes a trace" if path.suffix == ".agv" else ""
