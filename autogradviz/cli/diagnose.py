"""``autogradviz diagnose``: print the findings of a trace."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from autogradviz.cli.common_arguments import add_trace
from autogradviz.render.terminal_text import render_findings
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``diagnose`` to the command line."""
    text = "print what went wrong, and the line that caused it"
    parser = commands.add_parser("diagnose", help=text, description=text)
    add_trace(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=_diagnose)


def _diagnose(options: argparse.Namespace) -> None:
    trace = load(options.trace)
    if trace.log.problem is not None:
        sys.stderr.write(f"autogradviz: {options.trace}: {trace.log.problem}\n")
    if options.json:
        sys.stdout.write(json.dumps([asdict(finding) for finding in trace.diagnose()], indent=2))
        sys.stdout.write("\n")
    else:
        Console().print(render_findings(trace.diagnose()))
