"""``autogradviz why``: explain the state of a parameter, a node or an exception."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.cli.subcommand_and_exit_codes import Command

if TYPE_CHECKING:
    import argparse

    from autogradviz.trace import Trace


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help='a parameter, module, variable or node, "error", "loss" or "memory"',
    )
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")


def _why(trace: Trace, options: argparse.Namespace) -> None:
    explanation = trace.why(options.name)
    sys.stdout.write((explanation.to_json() if options.json else str(explanation)) + "\n")


COMMAND: Final = Command(
    "why",
    _why,
    _arguments,
    reads="trace",
)
