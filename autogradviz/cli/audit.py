"""``autogradviz audit``: list the lines that changed gradients or memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autogradviz.cli.common_arguments import add_trace, warn_incomplete
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``audit`` to the command line."""
    text = "list the lines that changed gradients or memory, and their effects"
    parser = commands.add_parser("audit", help=text, description=text)
    add_trace(parser)
    parser.add_argument("--json", action="store_true", help="print the entries as JSON")
    parser.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> None:
    trace = load(options.trace)
    warn_incomplete(trace, options.trace, options)
    audit = trace.audit()
    sys.stdout.write((audit.to_json() if options.json else str(audit)) + "\n")
