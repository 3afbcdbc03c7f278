"""The build of the native engine that the first recording starts in the background.

A recording that would use the native engine if it were built starts one, and uses the Python
engine. The build is a process of its own (``run_compiler.py``), in a session of its own and with
the lowest priority: the program waits for nothing but the shell that starts it, and has no child
afterwards. A later recording uses the result, also one of the same process: both engines may
record in one process, and a library is moved into place when it is complete.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from autogradviz.recorder.native import build, run_compiler
from autogradviz.recorder.native.extension_source import find_compiler
from autogradviz.support.locks_gc_and_stderr import print_line

VARIABLE: Final = "AUTOGRADVIZ_NATIVE_BUILD"
STARTED: Final = "a build of the native one was started in the background"

_ANNOUNCED: Final = "announced"
_LOCAL_RANKS: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "RANK")
_SHELL: Final = "/bin/sh"
_IN_BACKGROUND: Final = '"$@" &'
_MESSAGE: Final = (
    "building the native engine in the background, once; recordings cost about three times as much "
    f"until it is ready ({VARIABLE}=0 turns this off)"
)
_imported_by: Final = os.getpid()
_started: Final[set[Path]] = set()


def start_if_wanted() -> str | None:
    """Start a build, if none was made and this process may; never raise.

    Returns:
        Why the native engine is not used yet, None if nothing is known about it.
    """
    if os.environ.get(VARIABLE) == "0" or build.unsupported() is not None:
        return None
    library, compiler = build.library_path(), find_compiler()
    if library.exists() or compiler is None:
        return None
    if run_compiler.failure_of(library, compiler[0]) is not None:
        return "the native one could not be built; `autogradviz native status` says why"
    try:
        return _start(library, compiler)
    except (OSError, subprocess.SubprocessError):  # no place for the build, or no process
        return None


def _start(library: Path, compiler: list[str]) -> str | None:
    if library in _started or is_running(library):
        return STARTED
    if not _may_start():
        return None
    library.parent.mkdir(parents=True, exist_ok=True)
    with run_compiler.lock(library.parent) as held:
        if held is None:  # another process was faster, or there are no locks here
            return None
    program = [sys.executable, "-I", "-S", run_compiler.__file__, str(library)]
    subprocess.run(  # noqa: S603 - this interpreter and the user's own compiler
        [_SHELL, "-c", _IN_BACKGROUND, _SHELL, *program, *compiler, *build.arguments(compiler[0])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # no Ctrl-C and no closed terminal reaches it
        timeout=5,
        check=True,
    )
    _started.add(library)
    if _is_first(library):
        print_line(_MESSAGE)
    return STARTED


def is_running(library: Path) -> bool:
    """Return whether a process is building a library in the background."""
    if not (library.parent / run_compiler.LOCK).exists():
        return False
    with run_compiler.lock(library.parent) as held:
        return held is None


def _may_start() -> bool:
    """Return whether this is a program of its own, and the first of its kind on the host."""
    if not sys.executable or getattr(sys, "frozen", False):  # not the interpreter
        return False
    rank = next((os.environ[name] for name in _LOCAL_RANKS if name in os.environ), "0")
    return rank == "0" and not _is_worker()


def _is_worker() -> bool:
    """Return whether this process is a worker of multiprocessing, or forked from a program."""
    if multiprocessing.parent_process() is not None or os.getpid() != _imported_by:
        return True
    try:  # a forked child that was the first to import this module
        own, parent = (
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getpid(), os.getppid())
        )
    except OSError:
        return False
    return own == parent


def _is_first(library: Path) -> bool:
    """Return whether no build of this library was announced before."""
    try:
        (library.parent / _ANNOUNCED).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
