"""Run the compiler, and remember why it failed; as a program, the one build in the background.

As a program it uses the standard library alone, so that it starts in a moment and imports neither
PyTorch nor this package:

    python -I -S run_compiler.py LIBRARY COMPILER ARGUMENT...

NOTE [ One build at a time ]
The build in the background holds a lock of the system on a file in the cache folder, and so does
the compiler, which inherits it. The system frees the lock when the last of them ends, however it
ends: a file that a killed build left behind locks nothing. Where the file system has no such locks,
nothing is built in the background.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAILURE: Final = "failure.json"
LOCK: Final = "building.lock"
_WORK_FOLDER: Final = "in-background"
_NICE: Final = 19
_MOST_OF_MESSAGE: Final = 2_000  # characters, the last ones
_TIMEOUT_S: Final = 600
_BACKGROUND_TIMEOUT_S: Final = 7_200  # other programs may take all processors for long


class CompilerError(Exception):
    """The compiler failed or did not run; the message says why."""


def compile_to(
    library: Path,
    command: Sequence[str],
    temporary: Path,
    *,
    timeout_s: float = _TIMEOUT_S,
    inherited: Sequence[int] = (),
) -> None:
    """Run a compiler that writes to a temporary file, and move the result into place.

    A failure is remembered beside the library, a success forgets it.

    Args:
        library: the file to make.
        command: the compiler and its arguments, without the output.
        temporary: a file in the same file system.
        timeout_s: the time that the compiler may take.
        inherited: file descriptors that the compiler inherits.

    Raises:
        CompilerError: the compiler failed or did not run.
    """
    name = command[0]
    try:
        ran = subprocess.run(  # noqa: S603 - the compiler is the user's own
            [*command, "-o", str(temporary)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            pass_fds=inherited,
        )
        if ran.returncode == 0:
            temporary.replace(library)
            (library.parent / FAILURE).unlink(missing_ok=True)
            return
        message = f"{name} failed:\n{ran.stderr.strip()[-_MOST_OF_MESSAGE:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{name} did not run: {error}"
    _remember(library, name, message)
    raise CompilerError(message)


def _remember(library: Path, compiler: str, message: str) -> None:
    failure = {"compiler": identify(compiler), "message": message}
    with suppress(OSError):  # the folder was removed meanwhile
        (library.parent / FAILURE).write_text(json.dumps(failure), encoding="utf-8")


def failure_of(library: Path, compiler: str) -> str | None:
    """Return why this compiler failed to make a library, None if it did not."""
    try:
        failure = json.loads((library.parent / FAILURE).read_text(encoding="utf-8"))
        same = failure["compiler"] == identify(compiler)
        return str(failure["message"]) if same else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def identify(compiler: str) -> list[str | int]:
    """Return values that differ between compilers: the path, the size and the time of the file."""
    path = shutil.which(compiler) or compiler
    try:
        facts = Path(path).stat()
    except OSError:
        return [path]
    return [path, facts.st_size, facts.st_mtime_ns]


@contextmanager
def lock(folder: Path) -> Iterator[int | None]:
    """Hold the lock of builds in the background; None if it is held or cannot be."""
    try:
        import fcntl

        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except (ImportError, OSError):
        yield None
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        yield descriptor
    finally:
        os.close(descriptor)


def main() -> None:
    """Make a library with low priority, unless it is there or being made."""
    library, command = Path(sys.argv[1]), sys.argv[2:]
    folder = library.parent
    with lock(folder) as held, suppress(CompilerError, OSError):
        if held is None or library.exists() or failure_of(library, command[0]) is not None:
            return
        os.nice(_NICE)
        work = folder / _WORK_FOLDER
        shutil.rmtree(work, ignore_errors=True)  # of a build that was killed
        work.mkdir()
        # The program's folder of temporary files may be gone before the compiler ends.
        os.environ["TMPDIR"] = str(work)
        try:
            compile_to(
                library, command, work / library.name,
                timeout_s=_BACKGROUND_TIMEOUT_S, inherited=(held,),
            )  # fmt: skip
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
