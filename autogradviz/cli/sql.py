"""``autogradviz sql``: run a named query over the events of a trace."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.incomplete_traces import warn_incomplete
from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.errors import UnknownTargetError
from autogradviz.render.terminal_text import print_out, strip_controls
from autogradviz.sql_queries.named_queries import named_queries, run_query
from autogradviz.support.import_rich_keep_random_state import Table, Text
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = "a trace file (.agv); without it, list the queries"
    parser.add_argument("trace", nargs="?", type=Path, metavar="TRACE", help=text)
    text = "the name of a query, or a SELECT from the table events"
    parser.add_argument("name", nargs="?", metavar="NAME", help=text)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print comma-separated values")
    shape.add_argument("--print", action="store_true", help="print the SQL of the query only")


def _sql(options: argparse.Namespace) -> None:
    queries = {each.name: each for each in named_queries()}
    if options.trace is None:
        width = max(map(len, queries))
        for each in queries.values():
            sys.stdout.write(f"{each.name:{width}}  {each.description}\n")
        return
    if options.name is None or (options.print and options.name not in queries):
        message = f"name a query: {', '.join(queries)}"
        raise UnknownTargetError(message)
    if options.print:
        sys.stdout.write(f"{queries[options.name].sql}\n")
        return
    trace = load(options.trace)
    warn_incomplete(trace, options.trace, options)
    columns, rows = run_query(trace.log, options.name)
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([columns, *rows])
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    print_out(strip_controls(table))
    if not rows:
        sys.stdout.write("no rows\n")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


COMMAND: Final = Command(
    "sql",
    _sql,
    _arguments,
)
