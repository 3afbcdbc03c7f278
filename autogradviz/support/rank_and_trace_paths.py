"""The rank of this process, and the paths of the trace files of ranks.

A launcher such as torchrun sets environment variables for each process, so the rank is known
before torch is imported and without communication.
"""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]

_RANK_FILE: Final = re.compile(r"rank-\d{5,}(?:\.\d+)?(?:-\d+)?(?:\.last)?\.agv")
_NO_RUN_ID: Final = ("", "none")  # what torchrun passes unless it is given an id
_START_TICKS: Final = 19  # in /proc/PID/stat, after the name of the program
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process of a distributed run.

    Attributes:
        rank: the number of the process, from 0.
        world_size: the number of processes.
        local_rank: the number on its host; None if it is unknown.
        restart_count: how often the launcher has restarted the run.
        run_name: the same in all processes of a run, and usually in no other run.
    """

    rank: int
    world_size: int
    local_rank: int | None
    restart_count: int
    run_name: str

    @property
    def file_name(self) -> str:
        """The name of its trace: "rank-00003.agv", "rank-00003.1.agv" after a restart."""
        restart = f".{self.restart_count}" if self.restart_count else ""
        return f"rank-{self.rank:05}{restart}.agv"


def current_rank() -> Rank | None:
    """Return the rank of this process; None if no launcher set one and no group is initialized."""
    rank, world_size = _number("RANK"), _number("WORLD_SIZE")
    if rank is None or world_size is None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available():
            return None
        if not distributed.is_initialized():
            return None
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    return Rank(
        rank=rank,
        world_size=world_size,
        local_rank=_number("LOCAL_RANK"),
        restart_count=_number("TORCHELASTIC_RESTART_COUNT") or 0,
        run_name=_run_name(world_size),
    )


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _run_name(world_size: int) -> str:
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if name in _NO_RUN_ID:
        on_this_host = _number("LOCAL_WORLD_SIZE")
        job, address = (
            _joined("SLURM_JOB_ID", "SLURM_STEP_ID"),
            _joined("MASTER_ADDR", "MASTER_PORT"),
        )
        if on_this_host == world_size:
            name = _log_folder() or str(os.getppid())  # of the launcher of all ranks
        elif on_this_host is None:  # there may be a launcher on each host
            name = job or address or str(os.getppid())
        else:
            name = address
    return _NOT_IN_NAMES.sub("-", name)


def _log_folder() -> str:
    """Return the name of the folder that torchrun made for the logs of this run, "" if none.

    The parent of a rank is not torchrun if torchrun started a shell script for each.
    """
    # FOLDER/attempt_0/LOCAL_RANK/error.json
    parts = Path(os.environ.get("TORCHELASTIC_ERROR_FILE", "")).parts
    if len(parts) < 4 or not parts[-3].startswith("attempt_"):  # noqa: PLR2004
        return ""
    return parts[-4]


def _joined(*names: str) -> str:
    """Return the values of variables, "" unless all are set."""
    values = [os.environ.get(name, "") for name in names]
    return "-".join(values) if all(values) else ""


def launched_ns() -> tuple[int, int] | None:
    """Return when torchrun and this process began, in nanoseconds since 1970.

    None unless torchrun started this process and the system tells.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    try:
        # Not "btime" of /proc/stat, which has no fractions: restarts follow within a second.
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        ticks = [
            Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            for each in (os.getppid(), os.getpid())
        ]
        launcher, own = (
            int(1e9 * (booted + int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")))
            for fields in ticks
        )
    except (AttributeError, OSError, ValueError, IndexError):  # not on Linux
        return None
    return launcher, own


def as_path(path: object, wanted: str) -> Path:
    """Return a path.

    Args:
        path: a text or an object with ``__fspath__``.
        wanted: the begin of the message: "load() takes the path of a trace".

    Raises:
        TypeError: if it is no path.
    """
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    message = f"{wanted}, not {type(path).__name__}"
    raise TypeError(message)


def is_folder_path(path: PathLike) -> bool:
    """Return whether a path names the folder of a run: it ends with a separator.

    A ``Path`` cannot; with several ranks, an existing folder is one too.
    """
    text = os.fsdecode(path)
    if text.endswith(("/", os.sep)):
        return True
    rank = current_rank()
    return rank is not None and rank.world_size > 1 and Path(text).is_dir()


def trace_path(path: PathLike) -> Path:
    """Return the absolute path of this process's trace; in a folder, its rank is the name."""
    target = Path(path).absolute()
    if not is_folder_path(path):
        return target
    rank = current_rank()
    return target / ("rank-00000.agv" if rank is None else rank.file_name)


def last_steps_path(path: Path) -> Path:
    """Return the file beside a trace that holds the last steps while the process runs."""
    return path.with_name(f"{path.stem}.last{path.suffix}")


def is_rank_file(path: Path) -> bool:
    """Return whether a file is named like the trace of a rank; its folder is created with it."""
    return _RANK_FILE.fullmatch(path.name) is not None
