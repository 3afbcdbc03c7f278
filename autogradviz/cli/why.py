"""``autogradviz why``: explain the state of a parameter, a node or an exception."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autogradviz.cli.common_arguments import add_trace, warn_incomplete
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``why`` to the command line."""
    text = "explain the state of a parameter, module or node: the way to the line that caused it"
    parser = commands.add_parser("why", help=text, description=text)
    add_trace(parser)
    parser.add_argument(
        "name",
        metavar="NAME",
        help='a parameter, module, variable or node, "error", "loss" or "memory"',
    )
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")
    parser.set_defaults(run=_why)


def _why(options: argparse.Namespace) -> None:
    trace = load(options.trace)
    warn_incomplete(trace, options.trace, options)
    explanation = trace.why(options.name)
    sys.stdout.write((explanation.to_json() if options.json else str(explanation)) + "\n")
