"""``autogradviz html``: write an interactive report of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.common_arguments import add_output, add_redact
from autogradviz.cli.incomplete_traces import has_graph, warn_incomplete
from autogradviz.cli.output_files import choose_output, print_written
from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.comparison.compare_traces import compare
from autogradviz.distributed_runs.run import open_any
from autogradviz.errors import AutogradvizError
from autogradviz.trace import load as load_trace

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = "a trace file (.agv), or the folder of a distributed run"
    parser.add_argument("trace", type=Path, metavar="TRACE", nargs="?", help=text)
    parser.add_argument(
        "--compare",
        type=Path,
        metavar=("BEFORE", "AFTER"),
        nargs=2,
        help="compare two traces, aligned by module and source line",
    )
    add_output(parser, "the trace's name with .html, in this directory")
    add_redact(parser)


def _html(options: argparse.Namespace) -> None:
    if (options.trace is None) == (options.compare is None):
        message = "give one TRACE, or --compare BEFORE AFTER"
        raise AutogradvizError(message)
    if options.compare:
        options.trace = options.compare[1]
        output = choose_output(options, ".html")
        traces = [load_trace(path) for path in options.compare]
        for trace, path in zip(traces, options.compare, strict=True):
            warn_incomplete(trace, path, options)
        before, after = (t.redacted() for t in traces) if options.redact else traces
        compare(before, after).html(output, overwrite=options.overwrite)
    else:
        output = choose_output(options, ".html")
        found = open_any(options.trace)
        warn_incomplete(found, options.trace, options)
        if not has_graph(found):
            return
        found.html(output, redact=options.redact, overwrite=options.overwrite)
    print_written(output)


COMMAND: Final = Command(
    "html",
    _html,
    _arguments,
)
