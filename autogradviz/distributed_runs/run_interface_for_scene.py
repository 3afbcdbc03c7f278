"""The attributes of a run that its picture reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from autogradviz.distributed_runs.findings import RunFinding
    from autogradviz.distributed_runs.rank_files import RankFile, UnreadableFile
    from autogradviz.distributed_runs.ranks_unlike_others import OddRank
    from autogradviz.event_log import RankSummary
    from autogradviz.trace import Trace


class ReadableRun(Protocol):
    """A run; ``autogradviz.distributed_runs.run.Run`` is the only one."""

    folder: Path

    @property
    def files(self) -> tuple[RankFile, ...]:
        """The file of each rank, with its summary."""

    @property
    def unreadable(self) -> tuple[UnreadableFile, ...]:
        """The files that cannot be read."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that wrote a file."""

    @property
    def world_size(self) -> int:
        """The number of processes of the run."""

    @property
    def summaries(self) -> Mapping[int, RankSummary]:
        """The summary of each rank."""

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that should do the same."""

    def odd_ranks(self) -> list[OddRank]:
        """Return the ranks that differ from their group."""

    def diagnose(self) -> list[RunFinding]:
        """Return the problems."""

    def trace(self, rank: int) -> Trace:
        """Return the recording of one rank."""
