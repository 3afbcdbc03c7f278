"""``autogradviz demo``: train, record and break a small GPT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.support.import_rich_keep_random_state import Console

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIRECTORY",
        help="directory of the results (default: demo-output)",
    )


def _demo(options: argparse.Namespace) -> None:
    from autogradviz.demo.run import run_demo

    run_demo(options.output, Console())


COMMAND: Final = Command(
    "demo",
    _demo,
    _arguments,
)
