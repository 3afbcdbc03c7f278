"""``autogradviz explain``: print the page of a finding or an error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.diagnose.rule import rules_about
from autogradviz.errors import UnknownSlugError
from autogradviz.explanations.read_pages import explain, overview

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "the name in brackets, as in [graph-lost], or an error message of PyTorch; without it, "
        "list all names"
    )
    parser.add_argument("slug", nargs="*", metavar="NAME", help=text)


def _explain(options: argparse.Namespace) -> None:
    lines = _pages(" ".join(options.slug)) if options.slug else overview()
    sys.stdout.write("\n".join(lines) + "\n")


def _pages(text: str) -> list[str]:
    """Return the page of a name, or of a message; if several are about it, a line for each."""
    try:
        return [str(explain(text))]
    except UnknownSlugError:
        rules = rules_about(text) if " " in text else []
        slugs = list(dict.fromkeys(slug for rule in rules for slug in rule.slugs))
        if not slugs:
            raise
    if len(slugs) == 1:
        return [str(explain(slugs[0]))]
    width = max(map(len, slugs))
    return [f"{slug:{width}}  {explain(slug).title}" for slug in slugs]


COMMAND: Final = Command(
    "explain",
    _explain,
    _arguments,
)
