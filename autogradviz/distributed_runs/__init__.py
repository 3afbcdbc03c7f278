"""Runs of several ranks: one recording for each process, read and compared together."""

from autogradviz.distributed_runs.collective_differences import FirstDifference
from autogradviz.distributed_runs.findings import RunFinding
from autogradviz.distributed_runs.rank_files import RankFile, UnreadableFile
from autogradviz.distributed_runs.run import Run, load
from autogradviz.distributed_runs.slow_ranks_and_stages import OddRank

__all__ = [
    "FirstDifference",
    "OddRank",
    "RankFile",
    "Run",
    "RunFinding",
    "UnreadableFile",
    "load",
]
