"""Events as tables: Parquet (one wide table) and SQLite (a table a kind of event)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet

from autogradviz.event_log import batches, described_schema
from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.export.encoding import encodable

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.analysis import Analysis


SQLITE_ID: Final = b"AGvz"
"""What a database of ours has as its application's number, in the header of the file."""


def write_parquet(analysis: Analysis, path: Path) -> None:
    """Write the columns of the ``.agv`` file: the kind of event, then every field once."""
    with pyarrow.parquet.ParquetWriter(path, described_schema(), compression="zstd") as file:
        for batch in batches(analysis.log):
            file.write_batch(batch.replace_schema_metadata(described_schema().metadata))


def write_sqlite(analysis: Analysis, path: Path) -> None:
    """Write a table for each kind of event; lists are JSON text, booleans 0 and 1."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA application_id = {int.from_bytes(SQLITE_ID, 'big')}")
        for kind in EVENT_TYPES:
            rows = analysis.log.rows(kind)
            if not rows:
                continue
            # Names of tables and columns are those of our own classes.
            names = field_names(kind)
            columns = ", ".join(f'"{name}"' for name in names)
            database.execute(f'CREATE TABLE "{kind.__name__}" ({columns})')
            marks = ", ".join("?" * len(names))
            statement = f'INSERT INTO "{kind.__name__}" VALUES ({marks})'  # noqa: S608
            database.executemany(statement, (tuple(map(_plain, row)) for row in rows))


def _plain(value: Any) -> Any:
    """Return a value as SQLite holds it."""
    if isinstance(value, tuple):
        return json.dumps(value)
    return encodable(value) if isinstance(value, str) else value
