"""``autogradviz explain``: print the page of a finding or an error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.cli.command import Command
from autogradviz.explanations.read_pages import explain, overview

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = "the name in brackets, as in [graph-lost]; without it, list all names"
    parser.add_argument("slug", nargs="?", metavar="NAME", help=text)


def _explain(options: argparse.Namespace) -> None:
    lines = [str(explain(options.slug))] if options.slug else overview()
    sys.stdout.write("\n".join(lines) + "\n")


COMMAND: Final = Command(
    "explain",
    "explain a finding or an error",
    _explain,
    _arguments,
)
