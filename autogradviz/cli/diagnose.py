"""``autogradviz diagnose``: print the findings of a trace."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from autogradviz.cli.common_arguments import add_trace_or_run, warn_incomplete
from autogradviz.distributed_runs import Run, load
from autogradviz.render.terminal_text import render_findings
from autogradviz.support.rich_classes import Console

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``diagnose`` to the command line."""
    text = "print what went wrong, and the line that caused it"
    parser = commands.add_parser("diagnose", help=text, description=text)
    add_trace_or_run(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=_diagnose)


def _diagnose(options: argparse.Namespace) -> None:
    trace = load(options.trace)
    warn_incomplete(trace, options.trace)
    if isinstance(trace, Run):
        _diagnose_run(trace, as_json=options.json)
        return
    if options.json:
        sys.stdout.write(json.dumps([asdict(finding) for finding in trace.diagnose()], indent=2))
        sys.stdout.write("\n")
    else:
        Console().print(render_findings(trace.diagnose()))


def _diagnose_run(run: Run, *, as_json: bool) -> None:
    found = run.diagnose()
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in found], indent=2) + "\n")
        return
    console = Console()
    for each in found:
        console.print(each.heading, style="dim", highlight=False)
        console.print(render_findings([each.finding]))
    if not found:
        console.print(render_findings([]))
