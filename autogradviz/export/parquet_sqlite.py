"""Events as tables: Parquet (one wide table) and SQLite (one table for each event type)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet

from autogradviz.event_log import batches, described_schema
from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.support.escape_surrogates import escape_surrogates

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.analysis import Analysis

_APPLICATION_ID: Final = int.from_bytes(b"AGvz", "big")
"""Marks the databases of autogradviz, in the header of the file."""


def write_parquet(analysis: Analysis, path: Path) -> None:
    """Write the columns of an ``.agv`` file: the event type, then every field name once."""
    with pyarrow.parquet.ParquetWriter(path, described_schema(), compression="zstd") as file:
        for batch in batches(analysis.log):
            file.write_batch(batch.replace_schema_metadata(described_schema().metadata))


def write_sqlite(analysis: Analysis, path: Path) -> None:
    """Write one table for each event type; lists become JSON text, booleans 0 and 1.

    Raises:
        OSError: if the file cannot be written.
    """
    path.touch()  # if it fails, the error has the reason, which SQLite leaves out
    try:
        _write_tables(analysis, path)
    except sqlite3.OperationalError as error:  # the disk is full, for example
        raise OSError(str(error)) from error


def _write_tables(analysis: Analysis, path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for kind in EVENT_TYPES:
            rows = analysis.log.rows(kind)
            if not rows:
                continue
            # The names are those of our own classes, so they need no quoting.
            names = field_names(kind)
            columns = ", ".join(f'"{name}"' for name in names)
            database.execute(f'CREATE TABLE "{kind.__name__}" ({columns})')
            marks = ", ".join("?" * len(names))
            statement = f'INSERT INTO "{kind.__name__}" VALUES ({marks})'  # noqa: S608
            database.executemany(statement, (tuple(map(_to_sqlite, row)) for row in rows))


def _to_sqlite(value: Any) -> Any:
    """Return a value of a type that SQLite stores."""
    if isinstance(value, tuple):
        return json.dumps(value)
    return escape_surrogates(value) if isinstance(value, str) else value
