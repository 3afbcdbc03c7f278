"""The command line of ``autogradviz run``: our part, and the program with its arguments.

It imports nothing of autogradviz: other commands start without what ``run`` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

STANDARD_INPUT: Final = "-"
"""The name of the program that is read from standard input."""

_OPTIONS_WITH_VALUE: Final = frozenset(
    {"--break", "-o", "--output", "--keep-steps", "--steps", "--within", "--hang"}
)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into our own part and the program with its arguments.

    The second part is empty unless the command is ``run`` and names a program.
    """
    words = list(arguments)
    if words[:1] != ["run"]:
        return words, []
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] != STANDARD_INPUT:
        if words[place] == "--":
            return words[:place], words[place + 1 :]
        if words[place] == "-m":
            has_module = place + 1 < len(words)
            return (words[:place], words[place:]) if has_module else (words[:1], [])
        place += 2 if words[place] in _OPTIONS_WITH_VALUE else 1
    return words[:place], words[place:]
