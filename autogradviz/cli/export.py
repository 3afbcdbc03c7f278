"""``autogradviz export``: a trace in another program's format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.event_log import check_not_exists
from autogradviz.export import FORMATS, export
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Tell the command line of ``export``."""
    parser = commands.add_parser("export", help="write a trace in another program's format")
    parser.add_argument("trace", type=Path, metavar="x.agv", help="a trace")
    parser.add_argument("-f", "--format", choices=tuple(FORMATS), help="else by the name's end")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write")
    parser.add_argument("--force", action="store_true", help="replace FILE")
    text = "leave source text and absolute paths out"
    parser.add_argument("--redact", action="store_true", help=text)
    parser.set_defaults(run=_export, parser=parser)


def _export(options: argparse.Namespace) -> None:
    if options.output is None and options.format is None:
        options.parser.error("name a format with -f, or a file with -o")
    target: Path = options.output or Path(options.trace.stem + FORMATS[options.format][1][0])
    if not options.force:
        check_not_exists(target)
    trace = load(options.trace)
    analysis = (trace.redacted() if options.redact else trace).analysis
    export(analysis, target, options.format, force=options.force)
    sys.stdout.write(f"{target} ({format_bytes(target.stat().st_size)})\n")
