"""``autogradviz check``: check the gradients of a step that a script defines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autogradviz.checking.result import RELATIONS
from autogradviz.cli.script_function_argument import (
    add_step,
    read_name,
    read_step,
    run_script,
    split_step,
)
from autogradviz.cli.subcommand_and_exit_codes import NEGATIVE, SUMMARIES, Command
from autogradviz.errors import UnknownTargetError

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_step(parser, "a function without arguments that runs a step and returns its loss")
    parser.add_argument(
        "--model", metavar="NAME",
        help="the variable of the script that holds the model (default: the modules that the step "
        "calls)",
    )  # fmt: skip
    parser.add_argument(
        "--relations", metavar="NAMES", help=f"some of {', '.join(RELATIONS)}; comma-separated"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit (default: 120)")
    parser.add_argument(
        "--no-prove", action="store_true", help="do not try findings by experiments"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report of the step")


def _check(options: argparse.Namespace) -> None:
    from autogradviz.checking.try_each_relation import check

    script, name = split_step(options.step)
    names = run_script(script)
    step = read_step(names, name, script)
    model = None if options.model is None else read_name(names, options.model, script)
    chosen: dict[str, Any] = {"prove": not options.no_prove}
    if options.relations:
        chosen["relations"] = [each.strip() for each in options.relations.split(",")]
        unknown = set(chosen["relations"]) - set(RELATIONS)
        if unknown:
            message = f"no relation {', '.join(sorted(unknown))}; there are {', '.join(RELATIONS)}"
            raise UnknownTargetError(message)
    result = check(step, model, seconds=options.seconds, **chosen)
    sys.stdout.write(f"{result}\n")
    if options.html is not None and result.trace is not None:
        result.trace.html(options.html)
    if not (result.ok and result.counts["right"]):
        raise SystemExit(NEGATIVE)


COMMAND: Final = Command(
    "check",
    _check,
    _arguments,
    parser={
        "description": f"{SUMMARIES['check']}; the exit code is {NEGATIVE} if one fails or none "
        "was checked"
    },
)
