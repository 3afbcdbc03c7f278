"""Which formats there are, and which one a file's name asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.errors import UnknownFormatError
from autogradviz.event_log import beside, check_overwrites_own_file
from autogradviz.export.graph_formats import write_dot, write_graphml, write_model_explorer
from autogradviz.export.perfetto import write_perfetto
from autogradviz.export.tables import SQLITE_ID, write_parquet, write_sqlite

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis import Analysis
    from autogradviz.event_log import PathLike

FORMATS: Final[dict[str, tuple[Callable[[Analysis, Path], None], tuple[str, ...], bytes]]] = {
    "parquet": (write_parquet, (".parquet",), b"autogradviz-trace"),
    "sqlite": (write_sqlite, (".sqlite", ".sqlite3", ".db"), SQLITE_ID),
    "perfetto": (write_perfetto, (".pftrace", ".perfetto-trace"), b"autogradviz"),
    "model-explorer": (write_model_explorer, (".json",), b'", "graphs": [{"id": "'),
    "graphml": (write_graphml, (".graphml",), b"<graphml"),
    "dot": (write_dot, (".dot", ".gv"), b"digraph autograd {"),
}
"""What writes each format, the ends of files' names that ask for it, and what such a file holds."""


def export(
    analysis: Analysis,
    path: PathLike,
    format: str | None = None,  # noqa: A002
    *,
    force: bool = False,
) -> None:
    """Write a recording in another program's format; the file appears whole or not at all.

    Args:
        analysis: what was recorded.
        path: where to write.
        format: one of ``FORMATS``; by default the one that the end of the name asks for.
        force: replace whatever stands there, not only an older export of that format.

    Raises:
        FileExistsAlreadyError: something else stands there.
        UnknownFormatError: there is no such format, or the name asks for none.
        MissingExtraError: a package that the format needs is not installed.
    """
    target = Path(path)
    if format not in {None, *FORMATS}:
        message = f"{format!r} is none of the formats {', '.join(FORMATS)}."
        raise UnknownFormatError(message)
    write, _, mark = FORMATS[format or _format_of(target)]
    if not force:
        check_overwrites_own_file(target, mark, at_end=write is write_parquet)
    with beside(target) as partial:
        write(analysis, partial)
        partial.replace(target)


def _format_of(path: Path) -> str:
    for name, (_, ends, _) in FORMATS.items():
        if path.name.lower().endswith(ends):
            return name
    known = ", ".join(end for _, ends, _ in FORMATS.values() for end in ends)
    message = f"{path.name} does not say its format: end the name with one of {known}, or name one."
    raise UnknownFormatError(message)
