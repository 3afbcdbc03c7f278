"""``autogradviz audit``: list the lines that changed gradients or memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.cli.subcommand_and_exit_codes import Command

if TYPE_CHECKING:
    import argparse

    from autogradviz.trace import Trace


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the entries as JSON")


def _audit(trace: Trace, options: argparse.Namespace) -> None:
    audit = trace.audit()
    sys.stdout.write((audit.to_json() if options.json else str(audit)) + "\n")


COMMAND: Final = Command(
    "audit",
    _audit,
    _arguments,
    reads="trace",
)
