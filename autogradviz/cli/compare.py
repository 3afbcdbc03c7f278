"""``autogradviz compare``: what changed between two traces."""

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
    """Tell the command line of ``compare``."""
    parser = commands.add_parser("compare", help="say what changed between two traces")
    parser.add_argument("before", type=Path, metavar="a.agv", help="a trace")
    parser.add_argument("after", type=Path, metavar="b.agv", help="another one")
    parser.add_argument("--json", action="store_true", help="differences as JSON, for programs")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    found = compare(load(options.before), load(options.after))
    if options.json:
        sys.stdout.write(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    else:
        Console().print(found)
