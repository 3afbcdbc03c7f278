"""``autogradviz explain``: print the page of a finding or an error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autogradviz.explanations.read_pages import explain, overview

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``explain`` to the command line."""
    text = "explain a finding or an error"
    parser = commands.add_parser("explain", help=text, description=text)
    text = "the name in brackets, as in [graph-lost]; without it, list all names"
    parser.add_argument("slug", nargs="?", metavar="NAME", help=text)
    parser.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> None:
    lines = [str(explain(options.slug))] if options.slug else overview()
    sys.stdout.write("\n".join(lines) + "\n")
