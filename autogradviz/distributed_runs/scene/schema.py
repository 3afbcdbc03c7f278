"""The records of the view model of a run; the viewer has them in ``types.js``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.scene.schema import SceneFinding

if TYPE_CHECKING:
    from array import array

RECORDED: Final = 1
ENDED: Final = 2
OTHER_OPS: Final = 4
OTHER_COLLECTIVES: Final = 8
NOT_FINITE: Final = 16

CellState: TypeAlias = Literal["same", "other", "extra", "shifted", "missing", "unknown", "none"]
"""Of a collective of a rank: like that of most ranks; another one; one that most ranks do not call;
one with another number in its group, which is therefore paired with another collective; not called
although the step ended; not known, because the recording ends before; none, as on most ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScene:
    """One run."""

    title: str  # name of the folder
    facts: str  # "8 of 8 ranks on 2 hosts, 10 steps"
    verdict: str  # "996 equal in 4 groups, 4 odd"
    notices: tuple[str, ...]
    steps: tuple[int, ...]  # the columns
    groups: tuple[RunGroup, ...]
    ranks: tuple[RunRank, ...]  # the rows
    cells: RunCells
    findings: tuple[RunFindingCard, ...]
    lanes: tuple[CollectiveLanes, ...]
    hidden_lanes: int  # process groups without a picture
    differences: tuple[OpDifference, ...]
    command: str  # that opens the recording of a rank, with "{file}" in place of its file


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Ranks that should do the same."""

    label: str  # "ranks 0-249"
    first: int  # the first row
    count: int
    odd: int
    usual_ops: tuple[int | None, ...]  # for each step the number that most ranks have


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRank:
    """One rank, a row."""

    rank: int
    group: int
    host: str
    end: str  # how the recording ended
    is_complete: bool
    file: str
    nbytes: int
    odd: tuple[str, ...]  # "other ops, first in step 2: 24 ops instead of 23"
    reference: int  # the rank to compare it with, -1 if it is not odd
    holds_parts: bool  # the norms of its gradients are those of its parts of ``DTensor``s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCells:
    """Values of all ranks and steps, row by row; NaN where they are not known."""

    state: array[int]  # a sum of the constants above
    ops: array[int]  # -1 if not known
    time_ms: array[float]  # from the end of the previous step
    first_ms: array[float]  # from the end of the previous step to the first collective
    saved: array[float]  # most bytes that were saved for backward
    gradient: array[float]  # norm over all leaves that got one; infinite if it is not finite
    loss: array[float]  # norm of the last root of a backward


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFindingCard(SceneFinding):
    """One problem of the run."""

    heading: str  # "on 62 of 64 ranks: ranks 0-61"
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLanes:
    """The collectives of one process group: a column for each position in a step."""

    label: str  # "group mesh_dp (ranks 0-3)"
    first: int  # columns before the first one that is shown
    total: int  # columns in all
    steps: tuple[int, ...]  # of each column
    numbers: tuple[int, ...]  # in the group, on most ranks
    calls: tuple[LaneCall, ...]
    lanes: tuple[Lane, ...]
    hidden: int  # lanes that are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCall:
    """A collective that some cells show."""

    name: str  # "allreduce_"
    tensors: str  # "float32 16×4"
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The ranks that called the same collectives in all steps."""

    label: str  # "ranks 0-2"
    ranks: tuple[int, ...]
    states: tuple[CellState, ...]
    calls: tuple[int, ...]  # indices into the calls, -1 for none
    numbers: tuple[int, ...]  # in the group, -1 for none


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDifference:
    """The ops of two ranks around the first one that differs."""

    rank: int
    reference: int
    step: int
    index: int  # of that op in the step, from 0
    rows: tuple[OpPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPair:
    """An op of one rank beside that of the other; "" where one of them has none."""

    own: str
    own_place: str
    other: str
    other_place: str
