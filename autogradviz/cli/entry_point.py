"""``main``: parse the command line, run one subcommand, report its errors."""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

import autogradviz
from autogradviz._version import __version__
from autogradviz.cli.split_run_arguments import split
from autogradviz.cli.subcommand_and_exit_codes import (
    BROKEN_PIPE,
    EXAMPLES,
    FAILED,
    INTERRUPTED,
    NEGATIVE,
    SUMMARIES,
    describe_error,
)
from autogradviz.errors import AutogradvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.cli.subcommand_and_exit_codes import Command


def load_command(name: str) -> Command:
    """Import the module of a command, with what it needs, and return the command.

    Raises:
        ImportError: if a package is not installed that autogradviz needs.
    """
    module = importlib.import_module(f"autogradviz.cli.{name.replace('-', '_')}")
    found: Command = module.COMMAND
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code.

    Args:
        arguments: the arguments after the program's name; by default those of this process.
    """
    own, program = split(sys.argv[1:] if arguments is None else arguments)
    if program:  # its exceptions and streams are its own
        return _record(own, program)
    _escape_unencodable_output()
    if own and (message := _unknown_command(own[0])) is not None:
        return _report_error(message)
    try:
        options = _parse(own or ["--help"])
        options.run(options)
        sys.stdout.flush()
        return NEGATIVE if getattr(options, "is_incomplete", False) else 0
    except BrokenPipeError:  # the reader, for example head, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (AutogradvizError, ImportError, OSError) as error:
        return _report_error(describe_error(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _record(own: Sequence[str], program: Sequence[str]) -> int:
    """Record a program, and return its exit code."""
    try:
        options = _parse(own)
        from autogradviz.cli.run import record_program
    except ImportError as error:
        return _report_error(describe_error(error))
    return record_program(options, program)


_OTHER_WORDS: Final = {
    "convert": "export", "diff": "compare", "draw": "svg", "explore": "html", "graph": "svg",
    "inspect": "show", "open": "html", "profile": "run", "record": "run", "report": "html",
    "summary": "show", "trace": "run", "view": "html",
}  # fmt: skip
"""Words of other programs for our commands."""


_OPTIONS: Final = ("--version", "--help", "-h")
"""The options without a command; ``argparse`` takes their beginnings as well."""


def _unknown_command(word: str) -> str | None:
    """Return a message about a word that is no command, None if it is one or an option."""
    if word in EXAMPLES or any(own.startswith(word) for own in _OPTIONS):
        return None
    if word.startswith("-"):
        near = difflib.get_close_matches(word, _OPTIONS, n=1)
        hint = f"did you mean {near[0]}?" if near else "options go after the command"
        return f"there is no option {word!r} before a command; {hint}"
    near = [_OTHER_WORDS[word]] if word in _OTHER_WORDS else []
    near = near or difflib.get_close_matches(word, EXAMPLES, n=3)
    for suffix, what in (
        (".py", "record it: autogradviz run"),
        (".agv", "open it: autogradviz html"),
    ):
        if word.endswith(suffix):
            return f"there is no command {word!r}; to {what} {word}"
    hint = f"did you mean {' or '.join(near)}?" if near else "autogradviz --help lists all"
    return f"there is no command {word!r}; {hint}"


class _Parser(argparse.ArgumentParser):
    """A parser that answers an unknown option with the one that may be meant."""

    command = ""
    """The command whose options these may be."""

    def error(self, message: str) -> NoReturn:
        """Print a message, and exit."""
        actions = [own for own in self._actions if isinstance(own, argparse._SubParsersAction)]  # noqa: SLF001
        commands = [own.choices[self.command] for own in actions if self.command in own.choices]
        known = {option for each in commands for option in each._option_string_actions}  # noqa: SLF001
        words = message.partition("unrecognized arguments: ")[2].split()
        near = [each for word in words for each in difflib.get_close_matches(word, known, 1, 0.7)]
        if near:
            message += f"; did you mean {' or '.join(near)}?"
        elif self.command == "run" and words:
            message += "; options of the program go after its name"
        parser = commands[0] if commands else self
        own = parser.epilog.rpartition("\n")[2] if parser.epilog else ""
        # The end of the message of argparse.
        argparse.ArgumentParser.error(parser, f"{message}\n{own}" if own else message)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _build_parser(arguments[0])
    parser.command = arguments[0]
    return parser.parse_args(arguments)


def _build_parser(chosen: str) -> _Parser:
    """Return the parser of one command, which has a line about each of the others."""
    parser = _Parser(prog="autogradviz", description=autogradviz.__doc__)
    version = f"autogradviz {__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, summary in SUMMARIES.items():
        if name == chosen:
            load_command(name).add_to(commands)
        else:
            commands.add_parser(name, help=summary)
    for name, own in commands.choices.items():
        example = f"example: {EXAMPLES[name]}"
        own.epilog = example if own.epilog is None else f"{own.epilog}\n\n{example}"
    return parser


def _report_error(message: str) -> int:
    sys.stderr.write(f"autogradviz: {' '.join(message.split())}\n")
    return FAILED


def _escape_unencodable_output() -> None:
    """Escape characters that the encoding of a terminal or pipe lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
