"""Runs of several ranks: one recording for each process, read and compared together."""

from autogradviz.distributed_runs.findings import RunFinding
from autogradviz.distributed_runs.first_different_op import FirstDifference
from autogradviz.distributed_runs.rank_files import RankFile, UnreadableFile
from autogradviz.distributed_runs.ranks_unlike_others import OddRank
from autogradviz.distributed_runs.run import Run, load

__all__ = [
    "FirstDifference",
    "OddRank",
    "RankFile",
    "Run",
    "RunFinding",
    "UnreadableFile",
    "load",
]
