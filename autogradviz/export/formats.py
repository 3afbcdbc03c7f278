"""The export formats, and the choice of one by file name."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.errors import UnknownFormatError
from autogradviz.event_log import check_overwrites_own_file, temp_sibling

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.event_log import PathLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One export format.

    Attributes:
        name: the ``format`` argument of ``Trace.export``.
        description: the contents, for documentation.
        suffixes: file name suffixes that select the format; the first is the default.
        signature: bytes near the beginning of every such file, by which an earlier export is
            recognized.
        signature_at_end: whether the signature is near the end of the file instead.
        writer: the function that writes a file, as "module:function". It is called with an
            ``Analysis`` and a ``Path``, and imported only then.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    signature: bytes
    signature_at_end: bool = False
    writer: str

    def write(self, analysis: Analysis, path: Path) -> None:
        """Write a recording to a new file."""
        pkgutil.resolve_name(self.writer)(analysis, path)


FORMATS: Final = {
    each.name: each
    for each in (
        Format(
            name="parquet",
            description="all events in one wide table",
            suffixes=(".parquet",),
            signature=b"autogradviz-trace",
            signature_at_end=True,
            writer="autogradviz.export.parquet_sqlite:write_parquet",
        ),
        Format(
            name="sqlite",
            description="all events, one table for each type",
            suffixes=(".sqlite", ".sqlite3", ".db"),
            signature=b"AGvz",
            writer="autogradviz.export.parquet_sqlite:write_sqlite",
        ),
        Format(
            name="perfetto",
            description='timeline for ui.perfetto.dev; needs pip install "autogradviz[perfetto]"',
            suffixes=(".pftrace", ".perfetto-trace"),
            signature=b"autogradviz",
            writer="autogradviz.export.perfetto:write_perfetto",
        ),
        Format(
            name="model-explorer",
            description="the graph for Model Explorer",
            suffixes=(".json",),
            signature=b'", "graphs": [{"id": "',
            writer="autogradviz.export.graph_formats:write_model_explorer",
        ),
        Format(
            name="graphml",
            description="the graph for networkx, yEd and Gephi",
            suffixes=(".graphml",),
            signature=b"<graphml",
            writer="autogradviz.export.graph_formats:write_graphml",
        ),
        Format(
            name="dot",
            description="the graph for Graphviz",
            suffixes=(".dot", ".gv"),
            signature=b"digraph autograd {",
            writer="autogradviz.export.graph_formats:write_dot",
        ),
    )
}
"""The formats by name."""


def describe_formats() -> list[str]:
    """Return one line for each format: name, suffixes and contents."""
    return [
        f'"{each.name}" ({", ".join(each.suffixes)}): {each.description}'
        for each in FORMATS.values()
    ]


def export(
    analysis: Analysis,
    path: PathLike,
    format: str | None = None,  # noqa: A002
    *,
    overwrite: bool = False,
) -> None:
    """Write a recording in the format of another program, atomically.

    Args:
        analysis: the recording.
        path: the file to write.
        format: a name in ``FORMATS``; by default the suffix of the file name selects it.
        overwrite: replace any regular file, not only an earlier export in that format.

    Raises:
        OutputExistsError: if another non-empty file exists.
        UnknownFormatError: if no format has that name or suffix.
        MissingExtraError: if a package that the format needs is not installed.
    """
    target = Path(path)
    chosen = _format_of(target) if format is None else FORMATS.get(format)
    if chosen is None:
        message = f"{format!r} is none of the formats {', '.join(FORMATS)}."
        raise UnknownFormatError(message)
    check_overwrites_own_file(
        target, chosen.signature, at_end=chosen.signature_at_end, overwrite=overwrite
    )
    with temp_sibling(target) as partial:
        chosen.write(analysis, partial)
        partial.replace(target)


def _format_of(path: Path) -> Format:
    for each in FORMATS.values():
        if path.name.lower().endswith(each.suffixes):
            return each
    known = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
    message = f"{path.name} has none of the suffixes {known}; rename it, or pass a format."
    raise UnknownFormatError(message)
