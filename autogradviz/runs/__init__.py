"""Runs of several ranks: one recording for each process, read and compared together."""

from autogradviz.runs.findings import RunFinding
from autogradviz.runs.first_difference import FirstDifference
from autogradviz.runs.odd_ranks import OddRank
from autogradviz.runs.rank_files import RankFile, UnreadableFile
from autogradviz.runs.run import Run, load

__all__ = [
    "FirstDifference",
    "OddRank",
    "RankFile",
    "Run",
    "RunFinding",
    "UnreadableFile",
    "load",
]
