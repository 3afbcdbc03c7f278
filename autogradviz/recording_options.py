"""The options of one recording, created once and passed from ``record`` to the recorder."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from autogradviz.support.rank_and_trace_paths import as_path

if TYPE_CHECKING:
    from autogradviz.breakpoints.stop_condition import StopCondition
    from autogradviz.support.rank_and_trace_paths import PathLike

EngineName: TypeAlias = Literal["auto", "native", "python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """The options of one recording; ``record`` documents those that it has.

    Attributes:
        fake_mode: of the live tensors, ``memory`` is to record the fake ones of this mode only.
        path: as the user wrote it, because "run/" names the folder of a distributed run.
        break_on: the conditions under which the debugger is opened.
        verify: verify gradients: all, or those of the nodes of a module.
        hang_s: write the trace if nothing happens for so many seconds.
        survives_sigterm: write the trace if SIGTERM ends the process, also without other ranks.

    Raises:
        ValueError: if ``keep_steps`` is not a positive integer, ``engine`` is unknown, or
            ``verify`` or ``memory`` is set without ``ops``, or ``memory`` with ``keep_steps``.
    """

    fingerprints: bool = False
    norms: bool = False
    memory: bool = False
    fake_mode: object = None
    annotate_memory: bool = False
    device_time: bool = False
    verify: bool | str = False
    ops: bool = True
    stacks: bool = True
    keep_steps: int | None = None
    path: PathLike | None = None
    engine: EngineName = "auto"
    break_on: tuple[StopCondition, ...] = ()
    hang_s: float | None = None
    survives_sigterm: bool = False

    def __post_init__(self) -> None:
        if self.path is not None:
            as_path(self.path, "record() takes the path of a trace")
        steps = self.keep_steps
        if steps is not None and not (isinstance(steps, int) and 1 <= steps < sys.maxsize):
            message = f"keep_steps must be a positive integer, not {steps!r}"
            raise ValueError(message)
        if self.verify and not self.ops:
            message = "verify needs ops: the recorded operators run again"
            raise ValueError(message)
        if self.memory and not self.ops:
            message = "memory needs ops: storages that are freed are found between them"
            raise ValueError(message)
        if self.memory and steps is not None:
            message = "memory needs all steps: leave keep_steps out"
            raise ValueError(message)
        if self.engine not in get_args(EngineName):
            message = f"engine must be 'auto', 'native' or 'python', not {self.engine!r}"
            raise ValueError(message)
