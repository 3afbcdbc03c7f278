"""The argument SCRIPT.py:FUNCTION: a function that a script defines."""

from __future__ import annotations

import difflib
import inspect
import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogradviz.cli.subcommand_and_exit_codes import FAILED
from autogradviz.errors import ProgramNotFoundError, UnknownTargetError

if TYPE_CHECKING:
    import argparse


def add_step(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the positional argument SCRIPT.py:FUNCTION."""
    parser.add_argument("step", metavar="SCRIPT.py:FUNCTION", help=text)


def split_step(argument: str) -> tuple[str, str]:
    """Return the script and the function of an argument.

    Raises:
        ProgramNotFoundError: if there is no such script.
    """
    script, colon, name = argument.rpartition(":")
    if not colon:
        message = (
            f"{name} names no function; write {name}:FUNCTION, with the name of a function that "
            "runs one step and returns its loss"
        )
        raise ProgramNotFoundError(message)
    if not Path(script).is_file():
        message = f"no script {script!r}; write SCRIPT.py:FUNCTION"
        raise ProgramNotFoundError(message)
    return script, name


def run_script(script: str) -> dict[str, Any]:
    """Run a script as a module that is imported, and return its variables.

    An exception of the script is printed with its own traceback, and ends this process.

    Raises:
        ProgramNotFoundError: if the script exits, or imports a package that is not installed.
    """
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        return runpy.run_path(script, run_name=Path(script).stem)
    except SystemExit:
        message = (
            f"{script} exits when it is imported; put what it does, apart from definitions, below: "
            'if __name__ == "__main__":'
        )
        raise ProgramNotFoundError(message) from None
    except ModuleNotFoundError as error:
        raise ProgramNotFoundError(describe_missing_package(script, error)) from None
    except Exception as error:  # noqa: BLE001 - of the script
        place = error.__traceback__
        while place is not None and place.tb_frame.f_code.co_filename != script:
            place = place.tb_next
        traceback.print_exception(error.with_traceback(place))
        raise SystemExit(FAILED) from None


def module_of_script(script: str, error: ImportError) -> str:
    """Return "package.train" for a script that failed because it imports relatively, else ""."""
    if "attempted relative import" not in str(error) or not script.endswith(".py"):
        path = Path(script)
        is_package = "attempted relative import" in str(error) and path.is_dir()
        return path.name if is_package else ""
    path = Path(script)
    parts = [path.stem]
    while (path.parent / "__init__.py").is_file() and path.parent.name:
        path = path.parent
        parts.insert(0, path.name)
    return ".".join(parts) if len(parts) > 1 else ""


def describe_missing_package(script: str, error: ModuleNotFoundError) -> str:
    """Return a message about a package that a script imports and this Python does not have."""
    if error.name is None:
        return f"{script} cannot be imported: {error}"
    return (
        f"{script} imports {error.name!r}, which is not installed for {sys.executable}; "
        "install it there, or run autogradviz with the Python of the script"
    )


def read_step(names: dict[str, Any], name: str, script: str) -> Any:
    """Return a function of a script that runs a step without arguments.

    Raises:
        UnknownTargetError: if there is no function of that name, or if it requires arguments.
    """
    step = read_name(names, name, script)
    if not callable(step):
        message = f"{name} of {script} is no function: it is of type {type(step).__name__}"
        raise UnknownTargetError(message)
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):  # written in C
        return step
    required = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]
    if required:
        message = (
            f"{name} takes ({', '.join(required)}): write a function without required arguments "
            "that runs one step and returns its loss"
        )
        raise UnknownTargetError(message)
    return step


def read_name(names: dict[str, Any], name: str, script: str) -> Any:
    """Return a variable of a script.

    Raises:
        UnknownTargetError: if there is none of that name.
    """
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        functions = [each for each, value in names.items() if inspect.isfunction(value)]
        known = f"; its functions are {', '.join(functions)}" if functions else ""
        meant = f"; did you mean {near[0]!r}?" if near else known
        message = f"{script} has no {name!r}{meant}"
        raise UnknownTargetError(message)
    return names[name]
