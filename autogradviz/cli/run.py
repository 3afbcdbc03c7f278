"""``autogradviz run``: record an unmodified program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.breakpoints.stop_condition import parse_condition
from autogradviz.cli.common_arguments import seconds, step_count, step_range
from autogradviz.cli.record_program_for_run import ProgramRecording, print_error
from autogradviz.cli.run_as_main import is_success, read_program, run_as_main
from autogradviz.cli.subcommand_and_exit_codes import FAILED, Command, describe_error
from autogradviz.cli.traceback_of_program import install_excepthook
from autogradviz.errors import AutogradvizError, ProgramNotFoundError
from autogradviz.recording.break_on_argument import condition_of, finding_to_stop_at
from autogradviz.support.defer_and_redeliver_signals import CHILD_ENDED, uninterrupted
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from autogradviz.breakpoints.stop_condition import StopCondition
    from autogradviz.cli.run_as_main import Program

DEFAULT_KEEP_STEPS: Final = 3

_USAGE: Final = "autogradviz run [options] (script.py | -m module | -) [arguments]"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the trace to FILE; an existing file is an error. With several ranks, or if it "
        "ends with /, FILE is a folder with one trace for each rank",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="delete FILE, if it exists, when the recording begins",
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--keep-steps",
        type=step_count,
        metavar="N",
        default=DEFAULT_KEEP_STEPS,
        help=f"keep the last N steps in memory (default: {DEFAULT_KEEP_STEPS})",
    )
    amount.add_argument(
        "--all", action="store_true", help="keep all steps, and write them while they are recorded"
    )
    amount.add_argument(
        "--steps",
        type=step_range,
        metavar="A:B",
        help="record only steps A to B-1, counted from 0 by calls of optimizer.step()",
    )
    parser.add_argument(
        "--within",
        metavar="MODULE",
        help='only save events of modules matching this pattern, for example "h.*.attn"',
    )
    parser.add_argument(
        "--fingerprints", action="store_true", help="also compare the contents of tensors"
    )
    parser.add_argument(
        "--norms",
        action="store_true",
        help="also record norms of outputs, to compare a parallel run with one process",
    )
    parser.add_argument(
        "--no-ops", action="store_true", help="record the graph and backward only; costs less"
    )
    parser.add_argument(
        "--no-stacks", action="store_true", help="do not record source lines; costs less"
    )
    parser.add_argument(
        "--break",
        dest="break_on",
        action="append",
        metavar="CONDITION",
        default=[],
        help="open the debugger of breakpoint() when an event matches: op:NAME, line:FILE:NUMBER, "
        "module:NAME, node:NAME, write:PARAMETER, not-finite, or finding:TRACE for the culprit of "
        "the first finding of an earlier trace; with finding alone, the last argument is the "
        "trace. #N at the end is the Nth match only",
    )
    parser.add_argument(
        "--hang",
        type=seconds,
        metavar="SECONDS",
        help="write the trace, with the line where the program stands, if nothing happens for so "
        "long; less than the timeout of a process group",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="only print failures and findings"
    )


def _name_a_program(options: argparse.Namespace) -> None:
    options.parser.error("name a script, or -m and a module")


def record_program(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run a program, record it from its import of torch on, and return the exit code.

    Exceptions of the program pass through, and Python prints them as if it ran the program.
    """
    program = read_program(arguments)
    if program.name.endswith(".agv") and not program.module:
        print_error(f"{program.name} is a trace; open it with: autogradviz html {program.name}")
        return FAILED
    try:
        program, conditions = _read_break_options(options.break_on, program)
        recording = ProgramRecording(options, program, conditions, _options_not_read(program))
        recording.start()
    except (ValueError, OSError, AutogradvizError) as error:
        print_error(describe_error(error))
        return FAILED
    try:
        run_as_main(program)
    except ProgramNotFoundError as error:
        recording.cancel()
        print_error(str(error))
        return FAILED
    except BaseException as error:
        with uninterrupted(CHILD_ENDED):
            recording.close(error, failed=not is_success(error))
            if isinstance(error, SystemExit):  # Python does not call the excepthook
                recording.report()
            else:
                install_excepthook(error, recording.report)
        raise
    recording.close(None, failed=False)
    recording.report()
    return 0


_READING: Final = (
    "argv", "argparse", "ArgumentParser", "optparse", "getopt", "click", "typer", "fire", "absl",
    "docopt", "hydra", "tyro", "tap", "plac", "cyclopts", "parse", "config", "Config", "cli", "CLI",
)  # fmt: skip
"""Words of scripts that read their command line, or pass it to something that does."""


def _options_not_read(program: Program) -> tuple[str, ...]:
    """Return the arguments of a script that look like options, if nothing in it reads them."""
    options = [word for word in program.arguments if word.startswith("-")]
    if not options or program.module:
        return ()
    try:
        source = Path(program.name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ()
    return () if any(word in source for word in _READING) else tuple(options)


def _read_break_options(
    texts: Sequence[str], program: Program
) -> tuple[Program, tuple[StopCondition, ...]]:
    """Return the program and the conditions of ``--break``.

    ``--break finding`` takes the trace from the end of the command line; the program does not get
    that argument.

    Raises:
        ValueError: if a condition is none, or the trace has no finding to stop at.
        OSError: if the trace cannot be read.
    """
    conditions = []
    for text in texts:
        kind, _, path = text.partition(":")
        if kind != "finding":
            conditions.append(parse_condition(text))
            continue
        if not path:
            if not program.arguments or not program.arguments[-1].endswith(".agv"):
                message = "--break finding needs a trace as the last argument, or finding:TRACE"
                raise ValueError(message)
            path = program.arguments[-1]
            program = replace(program, arguments=program.arguments[:-1])
        trace = load(path)
        try:
            conditions.append(condition_of(finding_to_stop_at(trace.diagnose())))
        except ValueError as error:
            message = f"{path}: {error}"
            raise ValueError(message) from None
    return program, tuple(conditions)


COMMAND: Final = Command(
    "run",
    _name_a_program,
    _arguments,
    parser={
        "usage": _USAGE,
        "allow_abbrev": False,  # or they would be split wrongly
        "description": "Run a program as Python would, and record it. Options come before the "
        "script. The trace is written to NAME.agv, where NAME is that of the script; an earlier "
        "trace of this script there is replaced. If the file is another one, or with --break, it "
        "is kept, and the trace is NAME-2.agv.",
    },
)
