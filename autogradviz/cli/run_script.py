"""Somebody's program, run in this process as ``python script.py`` or ``python -m module`` would.

The program is ``__main__``; its arguments, the first entry of its search path, its exit code and
its traceback are what they would have been.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
from dataclasses import dataclass
from importlib.abc import InspectLoader
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import autogradviz
from autogradviz.errors import ProgramNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: "train.py" or, with ``module``, "package.train", and its arguments."""

    name: str
    arguments: tuple[str, ...]
    module: bool

    @property
    def stem(self) -> str:
        """What to call files about it: "train"."""
        return self.name.rpartition(".")[2] if self.module else Path(self.name).stem or "program"


def read_program(words: Sequence[str]) -> Program:
    """Return the program that a command line names: a path, or ``-m`` and a module's name."""
    if words[0] == "-m":
        return Program(words[1], tuple(words[2:]), module=True)
    return Program(words[0], tuple(words[1:]), module=False)


def run_as_main(program: Program) -> None:
    """Run a program to its end; what it raises is its own, ``SystemExit`` too.

    Raises:
        ProgramNotFoundError: there is no such file or module.
    """
    _put_first_on_path(program)
    # Before it is looked up: to look for "package.train" runs the package, which may read them.
    sys.argv[:] = ["-m" if program.module else program.name, *program.arguments]
    main = ModuleType("__main__")
    code = _find_module(program, main) if program.module else _find_script(program, main)
    before = sys.modules["__main__"]
    if "__annotations__" in vars(before):  # Python up to 3.13 begins with it
        main.__annotations__ = {}
    _keep.append(before)
    sys.modules["__main__"] = main
    _execute(code, main.__dict__)


_keep: list[ModuleType] = []
"""The ``__main__`` of before: were it collected, its functions would lose their names."""


def _execute(code: CodeType, namespace: dict[str, Any]) -> None:
    exec(code, namespace)  # noqa: S102 - it is the user's own program


def _put_first_on_path(program: Program) -> None:
    if getattr(sys.flags, "safe_path", False):  # Python 3.11 and newer, with -P
        return
    script = Path(program.name)
    if program.module:
        first = str(Path.cwd())
    elif script.is_file() and not _is_archive(script):
        first = str(script.resolve().parent)
    else:  # a folder or an archive that holds __main__.py
        first = str(Path.cwd() / script)
    sys.path[0] = first


def _is_archive(path: Path) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _find_script(program: Program, main: ModuleType) -> CodeType:
    path = Path(program.name)
    if not path.exists():
        message = f"{program.name}: No such file or directory"
        raise ProgramNotFoundError(message)
    if path.is_dir() or _is_archive(path):
        spec = importlib.machinery.PathFinder.find_spec("__main__", [str(Path.cwd() / path)])
        if spec is None:
            message = f"{program.name} holds no __main__.py"
            raise ProgramNotFoundError(message)
        return _take_over(spec, main)
    filename = str(Path.cwd() / path)
    loader = importlib.machinery.SourceFileLoader("__main__", filename)
    main.__dict__.update(__file__=filename, __loader__=loader, __cached__=None)
    with io.open_code(filename) as source:
        code: CodeType = compile(source.read(), filename, "exec", dont_inherit=True)
    return code


def _find_module(program: Program, main: ModuleType) -> CodeType:
    name = program.name
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.__main__".startswith(error.name):
            raise  # the program's own package lacks something
        spec = None
    if spec is None:
        message = f"no module named {name} that could be run"
        raise ProgramNotFoundError(message)
    code = _take_over(spec, main)
    sys.argv[0] = spec.origin or name
    return code


def _take_over(spec: importlib.machinery.ModuleSpec, main: ModuleType) -> CodeType:
    """Give ``__main__`` the attributes of a module; return its code."""
    loader = spec.loader
    code = loader.get_code(spec.name) if isinstance(loader, InspectLoader) else None
    if code is None:
        message = f"{spec.name} cannot be run: it has no code of Python's"
        raise ProgramNotFoundError(message)
    main.__dict__.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


# --- its traceback ----------------------------------------------------------------------------


_OWN: Final = str(Path(autogradviz.__file__).parent) + os.sep
_OPERATORS: Final = os.path.join("torch", "_ops.py")  # noqa: PTH118 - the end of a path
"""Whose frames stand below ours, where an operator was recorded."""


def strip_own_frames(error: BaseException) -> None:
    """Take out of an exception's traceback, and of those behind it, what is there through us."""
    waiting: list[BaseException | None] = [error]
    done: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in done:
            done.add(id(each))
            each.__traceback__ = _without_ours(_programs_own(each.__traceback__))
            waiting += [each.__cause__, each.__context__]


def _programs_own(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the program's first frame."""
    rest, through_us = traceback, False
    while rest is not None:
        code = rest.tb_frame.f_code
        if code is _execute.__code__:
            return rest.tb_next
        if code is run_as_main.__code__:  # it was found, read or compiled below
            through_us = True
        elif through_us and not code.co_filename.startswith((_OWN, "<frozen importlib")):
            return rest
        rest = rest.tb_next
    return None if through_us else traceback


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    below_ours = False
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        below_ours = filename.startswith(_OWN) or (below_ours and filename.endswith(_OPERATORS))
        if not below_ours:
            kept.append(traceback)
        traceback = traceback.tb_next
    for above, below in pairwise([*kept, None]):
        assert above is not None
        above.tb_next = below
    return kept[0] if kept else None


def install_excepthook(error: BaseException, afterwards: Callable[[], None]) -> None:
    """Have Python show an exception as the program's own, then call ``afterwards``."""
    shown = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
        if value is error:
            strip_own_frames(value)
            traceback = value.__traceback__
        shown(kind, value, traceback)
        afterwards()

    sys.excepthook = show


def outermost_frame() -> int:
    """Return the ``id`` of the frame below the program's own, 0 while it does not run."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way
    while frame is not None and frame.f_code is not _execute.__code__:
        frame = frame.f_back  # type: ignore[assignment]
    return 0 if frame is None else id(frame)


# --- when torch comes -------------------------------------------------------------------------


def is_success(error: BaseException) -> bool:
    """Return whether Python gives the exit code 0: any object may be what a program exits with."""
    if not isinstance(error, SystemExit):
        return False
    return error.code is None or (isinstance(error.code, int) and error.code == 0)


class ImportHook:
    """Calls a function once, as soon as a module has been imported; leaves nothing behind.

    So torch is imported when the program does it, with the environment that it has set by then.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def install(self) -> None:
        """Wait for the module; where it is there already, call at once."""
        if self._name in sys.modules:
            self._then()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find what everybody else finds; see to being told when it has run."""
        if name != self._name:
            return None
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]
        found = (each.find_spec(name, path, target) for each in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            self._hear_of(spec.loader)
        return spec

    def _hear_of(self, loader: Any) -> None:
        """See to being told when a loader has run its module, if it ever does.

        Who only asks whether the module is there finds it too.
        """
        load = loader.exec_module

        def load_and_tell(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # its class's own again
            load(module)
            if self in sys.meta_path:
                self.remove()
                self._then()

        loader.exec_module = load_and_tell
