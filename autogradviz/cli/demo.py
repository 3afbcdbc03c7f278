"""``autogradviz demo``: train, record and break a small GPT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.support.rich_classes import Console

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``demo`` to the command line."""
    text = "train, record and break a small GPT (needs torch)"
    parser = commands.add_parser("demo", help=text, description=text)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIRECTORY",
        help="directory of the results (default: demo-output)",
    )
    parser.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> None:
    from autogradviz.demo.run import run_demo

    run_demo(options.output, Console())
