"""Run a program in this process as ``python script.py`` would, with the traceback it would have."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from autogradviz.cli.files_in_place_of_missing_one import describe_similar_files
from autogradviz.cli.split_run_arguments import STANDARD_INPUT
from autogradviz.errors import ProgramNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence


# The program is ``__main__``; its arguments and the first entry of its search path are the same.


_NULL_BYTES: Final = "source code string cannot contain null bytes"


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its arguments.

    Attributes:
        name: path of the script, "train.py", or qualified name of the module, "package.train".
        arguments: the command line arguments of the program.
        module: whether ``name`` is a module.
    """

    name: str
    arguments: tuple[str, ...]
    module: bool

    @property
    def stem(self) -> str:
        """Base name for files about the program: "train"."""
        if self.name == STANDARD_INPUT:
            return "stdin"
        return self.name.rpartition(".")[2] if self.module else Path(self.name).stem or "program"


def read_program(arguments: Sequence[str]) -> Program:
    """Return the program of a command line: a path, or ``-m`` and a module, then arguments."""
    if arguments[0] == "-m":
        return Program(arguments[1], tuple(arguments[2:]), module=True)
    return Program(arguments[0], tuple(arguments[1:]), module=False)


def run_as_main(program: Program) -> None:
    """Run a program; its exceptions pass through, ``SystemExit`` included.

    Raises:
        ProgramNotFoundError: if there is no such file or module.
    """
    _put_first_on_path(program)
    # Before the lookup: finding "package.train" imports the package, which may read sys.argv.
    sys.argv[:] = ["-m" if program.module else program.name, *program.arguments]
    main = ModuleType("__main__")
    code = _find_module(program, main) if program.module else _find_script(program, main)
    before = sys.modules["__main__"]
    if "__annotations__" in vars(before):  # set by Python up to 3.13
        main.__annotations__ = {}
    _kept_alive.append(before)
    sys.modules["__main__"] = main
    _execute(code, main.__dict__)


_kept_alive: list[ModuleType] = []
"""The previous ``__main__``; when a module is collected its functions lose their globals."""


def _execute(code: CodeType, namespace: dict[str, Any]) -> None:
    exec(code, namespace)  # noqa: S102 - the program of the user


EXECUTE_CODE: Final = _execute.__code__
"""Code of the frame that calls the program."""


def has_started(error: BaseException) -> bool:
    """Return whether a line of the program ran before an exception that left ``run_as_main``."""
    part = error.__traceback__
    while part is not None:
        if part.tb_frame.f_code is EXECUTE_CODE:
            return True
        part = part.tb_next
    return False


def _put_first_on_path(program: Program) -> None:
    if getattr(sys.flags, "safe_path", False):  # Python 3.11 and newer, with -P
        return
    script = Path(program.name)
    if program.name == STANDARD_INPUT:
        first = ""
    elif program.module:
        first = str(Path.cwd())
    elif script.is_file() and not _is_archive(script):
        first = str(script.resolve().parent)
    else:  # a directory or archive with a __main__.py
        first = str(Path.cwd() / script)
    sys.path[0] = first


def _is_archive(path: Path) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _find_script(program: Program, main: ModuleType) -> CodeType:
    path = Path(program.name)
    if program.name == STANDARD_INPUT:
        main.__dict__.update(__loader__=importlib.machinery.BuiltinImporter)
        return _compile(sys.stdin.read(), "<stdin>")
    if not path.exists():
        message = f"{program.name}: No such file or directory{describe_similar_files(path, '.py')}"
        raise ProgramNotFoundError(message)
    if path.is_dir() or _is_archive(path):
        spec = importlib.machinery.PathFinder.find_spec("__main__", [str(Path.cwd() / path)])
        if spec is None:
            message = f"{program.name} has no __main__.py"
            raise ProgramNotFoundError(message)
        return _set_up_main(spec, main)
    filename = str(Path.cwd() / path)
    loader = importlib.machinery.SourceFileLoader("__main__", filename)
    main.__dict__.update(__file__=filename, __loader__=loader, __cached__=None)
    with io.open_code(filename) as source:
        return _compile(source.read(), filename)


def _compile(source: str | bytes, filename: str) -> CodeType:
    try:
        code: CodeType = compile(source, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        if _NULL_BYTES not in str(error):
            raise
        raise type(error)(_NULL_BYTES.replace(" string", "")) from None  # as Python says of a file
    return code


def _find_module(program: Program, main: ModuleType) -> CodeType:
    name = program.name
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.__main__".startswith(error.name):
            raise  # an import inside the program's own package failed
        spec = None
    if spec is None:
        message = f"no module named {name} that could be run"
        raise ProgramNotFoundError(message)
    code = _set_up_main(spec, main)
    sys.argv[0] = spec.origin or name
    return code


def _set_up_main(spec: importlib.machinery.ModuleSpec, main: ModuleType) -> CodeType:
    """Set the attributes of ``__main__`` to those of a module, and return its code."""
    loader = spec.loader
    # As runpy does: the loader of archives is no ``InspectLoader``.
    get_code = getattr(loader, "get_code", None)
    code: CodeType | None = None if get_code is None else get_code(spec.name)
    if code is None:
        message = f"{spec.name} cannot be run: it has no Python code"
        raise ProgramNotFoundError(message)
    main.__dict__.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


def is_success(error: BaseException) -> bool:
    """Return whether Python exits with code 0; ``SystemExit.code`` can be any object."""
    if not isinstance(error, SystemExit):
        return False
    return error.code is None or (isinstance(error.code, int) and error.code == 0)
