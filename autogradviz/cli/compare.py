"""``autogradviz compare``: print what changed between two traces."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from autogradviz.compare import compare
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``compare`` to the command line."""
    text = "print what changed between two traces"
    parser = commands.add_parser("compare", help=text, description=text)
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a trace file (.agv)")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another trace file")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    comparison = compare(load(options.before), load(options.after))
    if options.json:
        sys.stdout.write(json.dumps([asdict(each) for each in comparison], indent=2) + "\n")
    else:
        Console().print(comparison)
