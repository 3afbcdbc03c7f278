"""The file of a rank, which differs after a restart that torchrun did not count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.errors import AutogradvizError
from autogradviz.event_log.read_some_kinds_of_events import read_summary
from autogradviz.support.rank_and_trace_paths import last_steps_path, launched_ns

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.support.rank_and_trace_paths import Rank


def path_of_rank(folder: Path, rank: Rank) -> Path:
    """Return the file of a rank; another one if its launcher has started the rank before.

    On each host, torchrun counts only the restarts that a failure on that host caused.
    """
    path, times = folder / rank.file_name, launched_ns()
    while times is not None and (path.is_file() or last_steps_path(path).is_file()):
        launcher, own = times
        try:
            earlier = read_summary(path if path.is_file() else last_steps_path(path))
        except (OSError, AutogradvizError):
            break
        if earlier.run_name != rank.run_name or not launcher <= earlier.started_at_ns < own:
            break
        rank = replace(rank, restart_count=rank.restart_count + 1)
        path = folder / rank.file_name
    return path
