"""The export formats, and the choice of one by file name."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.entry_points import failures_reported, plugins
from autogradviz.errors import AutogradvizError, UnknownFormatError
from autogradviz.event_log import check_overwrites_own_file, temp_sibling

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        origin: the plug-in that it comes from, "" if autogradviz; set by autogradviz.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    signature: bytes
    signature_at_end: bool = False
    writer: str
    origin: str = ""

    def write(self, analysis: Analysis, path: Path) -> None:
        """Write a recording to a new file.

        Raises:
            AutogradvizError: if the writer of a plug-in fails.
        """
        try:
            pkgutil.resolve_name(self.writer)(analysis, path)
        except Exception as error:
            if not self.origin or isinstance(error, AutogradvizError):
                raise
            problem = f"failed: {type(error).__name__}: {error}"
            raise AutogradvizError(self._named(problem)) from error
        if self.origin and not path.exists():
            raise AutogradvizError(self._named("wrote no file"))

    def _named(self, problem: str) -> str:
        return f"the format {self.name} of the plug-in {self.origin} {problem}"


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
            description="timeline for ui.perfetto.dev; needs pip install perfetto",
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
        Format(
            name="story",
            description="the story of the first finding, as an animated picture for documents",
            suffixes=(".story.svg",),
            signature=b'data-autogradviz="story"',
            writer="autogradviz.export.finding_story:write_story",
        ),
    )
}
"""Our formats by name."""


@cache
def all_formats() -> dict[str, Format]:
    """Return our formats and those of plug-ins, by name.

    Warns:
        AutogradvizWarning: for each plug-in whose format cannot be used.
    """
    found = dict(FORMATS)
    for plugin in plugins("autogradviz.formats"):
        with failures_reported(plugin.origin):
            each = _checked(plugin.value, found)
            found[each.name] = replace(each, origin=plugin.origin)
    return found


def _checked(value: object, known: dict[str, Format]) -> Format:
    """Return the format of a plug-in.

    Raises:
        TypeError: it is no format, or an attribute has another type.
        ValueError: an attribute is empty, or its name or a suffix is taken.
    """
    if not isinstance(value, Format):
        message = f"{value!r} is not a Format"
        raise TypeError(message)
    kinds = {"name": str, "description": str, "writer": str, "suffixes": tuple, "signature": bytes}
    for attribute, kind in kinds.items():
        if not isinstance(getattr(value, attribute), kind):
            message = f"its {attribute} is no {kind.__name__}"
            raise TypeError(message)
    if not (value.name and value.suffixes and value.signature):  # "" would be in every file
        message = "a format needs a name, a suffix and a signature"
        raise ValueError(message)
    taken = tuple(suffix for each in known.values() for suffix in each.suffixes)
    for suffix in value.suffixes:
        if not re.fullmatch(r"(\.[a-z0-9_-]+)+", suffix) or suffix.endswith(taken):
            message = f"the suffix {suffix!r} is taken, or not like '.csv'"
            raise ValueError(message)
    if value.name in known:
        message = f"the name {value.name!r} is taken"
        raise ValueError(message)
    return value


def describe_formats(formats: Mapping[str, Format] = FORMATS) -> list[str]:
    """Return one line for each format: name, suffixes and contents."""
    return [
        f'"{each.name}" ({", ".join(each.suffixes)}): {each.description}'
        for each in formats.values()
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
        format: a name in ``all_formats()``; by default the suffix of the file name selects it.
        overwrite: replace any regular file, not only an earlier export in that format.

    Raises:
        OutputExistsError: if another non-empty file exists.
        UnknownFormatError: if no format has that name or suffix.
        MissingExtraError: if a package that the format needs is not installed.
        AutogradvizError: if the format of a plug-in fails.
    """
    target = Path(path)
    if format is None:
        chosen: Format | None = _format_of(target)
    else:
        chosen = FORMATS.get(format) or all_formats().get(format)
    if chosen is None:
        message = f"{format!r} is none of the formats {', '.join(all_formats())}."
        raise UnknownFormatError(message)
    check_overwrites_own_file(
        target, chosen.signature, at_end=chosen.signature_at_end, overwrite=overwrite
    )
    with temp_sibling(target) as partial:
        chosen.write(analysis, partial)
        partial.replace(target)


def _format_of(path: Path) -> Format:
    def has_suffix(each: Format) -> bool:
        return path.name.lower().endswith(each.suffixes)

    # Plug-ins are loaded only if none of our formats has the suffix.
    found = next(filter(has_suffix, FORMATS.values()), None)
    found = found or next(filter(has_suffix, all_formats().values()), None)
    if found is not None:
        return found
    known = ", ".join(suffix for each in all_formats().values() for suffix in each.suffixes)
    message = f"{path.name} has none of the suffixes {known}; rename it, or pass a format."
    raise UnknownFormatError(message)
