"""The code that calls an operator: the program, or a compiled region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from types import FrameType

EAGER: Final = 0
COMPILED: Final = 1  # recorded
LEFT_OUT: Final = 2
"""A compiled region whose ops are recorded with the region, not in each run."""

ALL_LEFT_OUT: Final = 3
"""The same if no op of its graph is recorded in a run."""


class OpOrigins(Protocol):
    """The callers of operators; ``compile/leave_out_generated_code_ops.py`` implements it."""

    def ask(self) -> int:
        """Return one of the constants above for the operator that the calling frame runs."""

    def origin_of(self, frame: FrameType | None) -> int:
        """Return one of the constants above for the operators that a frame calls."""
