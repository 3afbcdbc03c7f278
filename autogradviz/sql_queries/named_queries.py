"""The named queries of ``autogradviz sql``, and the one that shows a finding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autogradviz.errors import AutogradvizError, MissingExtraError, UnknownTargetError
from autogradviz.event_log import TrainingSteps, batches, described_schema
from autogradviz.event_log.training_steps import NO_END
from autogradviz.events import (
    BackwardStarted,
    CompiledGraphCaptured,
    StateChanged,
    TensorUnpacked,
    VersionBumped,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from autogradviz.event_log import Log
    from autogradviz.events import Event

_BLOCK: Final = re.compile(r"^-- ([\w-]+): (.+)\n", re.MULTILINE)
_VIEWS: Final = "views"

_ROWS: Final[tuple[tuple[str, type[Event], str], ...]] = (
    ("state-changes", StateChanged, "seq"),
    ("unpacked-changed", TensorUnpacked, "seq"),
    ("writes", VersionBumped, "seq"),
    ("writes", VersionBumped, "op_seq"),
    ("backwards", BackwardStarted, "seq"),
    ("graph-breaks", CompiledGraphCaptured, "seq"),
)
"""Queries with a row for each event of a kind, and the column that a finding may refer to."""


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query: its name, its question and its SQL."""

    name: str
    description: str
    sql: str


@cache
def _blocks() -> dict[str, NamedQuery]:
    text = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    _, *parts = _BLOCK.split(text)
    found = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name: NamedQuery(name, about, sql.strip()) for name, about, sql in found}


def named_queries() -> tuple[NamedQuery, ...]:
    """Return all queries, in the order of their file."""
    return tuple(each for each in _blocks().values() if each.name != _VIEWS)


def query_of(events: Collection[int], log: Log) -> str:
    """Return the name of a query with a row for one of some events, "" if there is none."""
    for name, kind, column in _ROWS:
        for event in log.of(kind):
            if getattr(event, column) in events and _has_row(event):
                return name
    return ""


def _has_row(event: Event) -> bool:
    """Return whether the query of an event's kind does not leave it out."""
    if isinstance(event, TensorUnpacked):
        pairs = (event.version, event.seen_version), (event.saved_hash, event.seen_hash)
        return any(None not in pair and pair[0] != pair[1] for pair in pairs)
    return not isinstance(event, CompiledGraphCaptured) or event.graph_break


def run_query(log: Log, name: str) -> tuple[list[str], list[Any]]:
    """Return the names of the columns and the rows of a query.

    Args:
        log: the events.
        name: the name of a query, or a statement that begins with SELECT or WITH.

    Raises:
        MissingExtraError: DuckDB is not installed.
        UnknownTargetError: there is no such query.
        AutogradvizError: the statement fails.
    """
    try:
        import duckdb
    except ImportError:
        message = "queries need DuckDB: pip install duckdb"
        raise MissingExtraError(message) from None
    with duckdb.connect() as connection:
        connection.register("events", _table(log))
        connection.register("steps", _steps_table(log))
        connection.execute(_blocks()[_VIEWS].sql)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        try:
            result = connection.execute(_sql_of(name))
            names = [column[0] for column in result.description or ()]
            return names, result.fetchall()
        except duckdb.Error as error:
            raise AutogradvizError(str(error).partition("\n")[0]) from None


def _sql_of(name: str) -> str:
    if re.match(r"\s*(select|with)\b", name, re.IGNORECASE):
        return name
    names: Sequence[str] = [each.name for each in named_queries()]
    if name not in names:
        import difflib

        near = difflib.get_close_matches(name, names, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        message = f"no query {name!r}{meant}; `autogradviz sql TRACE` lists all"
        raise UnknownTargetError(message)
    return _blocks()[name].sql


def _steps_table(log: Log) -> Any:
    """Return the training steps, without their parts."""
    import pyarrow as pa

    whole, real = pa.int64(), pa.float64()
    columns = {
        "step": (whole, lambda step: step.number),
        "start_seq": (whole, lambda step: step.start_seq),
        "end_seq": (whole, lambda step: None if step.end_seq == NO_END else step.end_seq),
        "ms": (real, lambda step: (step.end_ns - step.start_ns) / 1e6),
        "ended": (pa.bool_(), lambda step: step.ended),
        "backwards": (whole, lambda step: len(step.backwards)),
        "optimizers": (whole, lambda step: len(step.optimizers)),
        "loss": (real, lambda step: step.loss),
    }
    steps = TrainingSteps(log)
    return pa.table(
        {name: pa.array(map(read, steps), kind) for name, (kind, read) in columns.items()}
    )


def _table(log: Log) -> Any:
    import pyarrow as pa

    schema = described_schema()
    return pa.Table.from_batches(
        [batch.replace_schema_metadata(schema.metadata) for batch in batches(log)], schema
    )
