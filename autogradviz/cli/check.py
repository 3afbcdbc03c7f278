"""``autogradviz check``: check the gradients of a step that a script defines."""

from __future__ import annotations

import difflib
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogradviz.checking.result import RELATIONS
from autogradviz.cli.exit_codes import NEGATIVE
from autogradviz.errors import ProgramNotFoundError, UnknownTargetError

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``check`` to the command line."""
    text = "check whether the gradients of a training step are right"
    parser = commands.add_parser(
        "check", help=text, description=f"{text}; the exit code is {NEGATIVE} if a relation fails"
    )
    parser.add_argument(
        "step", metavar="SCRIPT.py:FUNCTION",
        help="a function without arguments that runs a step and returns its loss",
    )  # fmt: skip
    parser.add_argument(
        "--model", default="model", metavar="NAME",
        help="the variable of the script that holds the model (default: model)",
    )  # fmt: skip
    parser.add_argument(
        "--relations", metavar="NAMES", help=f"some of {', '.join(RELATIONS)}; comma-separated"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit (default: 120)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report of the step")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> None:
    from autogradviz.checking.run_relations import check

    script, colon, name = options.step.rpartition(":")
    if not colon:
        message = f"{name} names no function; write {name}:FUNCTION"
        raise ProgramNotFoundError(message)
    if not Path(script).is_file():
        message = f"no script {script!r}; write SCRIPT.py:FUNCTION"
        raise ProgramNotFoundError(message)
    sys.path.insert(0, str(Path(script).resolve().parent))
    names = runpy.run_path(script, run_name=Path(script).stem)
    step = _read(names, name, script)
    model = _read(names, options.model, script, "; name another variable with --model NAME")
    chosen: dict[str, Any] = {}
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
    if not result.ok:
        raise SystemExit(NEGATIVE)


def _read(names: dict[str, Any], name: str, script: str, advice: str = "") -> Any:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else advice
        message = f"{script} has no {name!r}{meant}"
        raise UnknownTargetError(message)
    return names[name]
