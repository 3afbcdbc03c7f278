"""``autogradviz html``: write an interactive report of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.cli.common_arguments import add_output, add_redact, add_trace
from autogradviz.cli.output_path import choose_output, print_written
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``html`` to the command line."""
    text = "write an interactive report for a browser; it works offline"
    parser = commands.add_parser("html", help=text, description=text)
    add_trace(parser)
    add_output(parser, "the trace's name with .html, in this directory")
    add_redact(parser)
    parser.set_defaults(run=_html)


def _html(options: argparse.Namespace) -> None:
    output = choose_output(options, ".html")
    load(options.trace).html(output, redact=options.redact, overwrite=options.overwrite)
    print_written(output)
