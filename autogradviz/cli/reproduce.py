"""``autogradviz reproduce``: write a short program that shows the error of a recording."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.cli.common_arguments import add_output
from autogradviz.cli.output_files import choose_output
from autogradviz.cli.subcommand_and_exit_codes import NEGATIVE, SUMMARIES, Command
from autogradviz.event_log import check_overwrites_own_file
from autogradviz.reproduce.reproduction import HEAD

if TYPE_CHECKING:
    import argparse

    from autogradviz.trace import Trace

_WIDTH = 100


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "NAME.repro.py in this directory for NAME.agv", overwrite=False)
    text = "add the recorded source lines as comments"
    parser.add_argument("--source", action="store_true", help=text)
    text = "time for all runs (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help=text)


def _reproduce(trace: Trace, options: argparse.Namespace) -> None:
    path = choose_output(options, ".repro.py")
    check_overwrites_own_file(path, HEAD.encode())  # before the search, which takes a while
    found = trace.reproduce(source=options.source, seconds=options.seconds)
    if not found.text:
        sys.stdout.write(f"{found}\n")
        raise SystemExit(NEGATIVE)
    if found.same:
        found.save(path)
        sys.stdout.write(f"{path} ({found.statements} statements); run it with: python {path}\n")
    else:
        sys.stdout.write("nothing was written: no program does the same as the recording\n")
    verdict = "the same" if found.same else "not the same"
    sys.stdout.write(f"recorded: {_first_line(found.expected)}\n")
    sys.stdout.write(f"program:  {_first_line(found.got) or 'nothing'} ({verdict})\n")
    for each in found.missing:
        sys.stdout.write(f"not repeated: {each}\n")
    sys.stdout.flush()
    if not found.same:
        raise SystemExit(NEGATIVE)


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:_WIDTH]


COMMAND: Final = Command(
    "reproduce",
    _reproduce,
    _arguments,
    reads="trace",
    parser={
        "description": f"{SUMMARIES['reproduce']}. It needs only PyTorch, and is run before it is "
        "written. An "
        "earlier program of this command is replaced; any other file is kept."
    },
)
