"""Source lines of the stacks of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.analysis.types import SourceLocation
from autogradviz.events import FrameSeen, StackSeen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autogradviz.event_log import Row
    from autogradviz.events import Event


class Lines:
    """The innermost line of the user's program in each stack."""

    KINDS: Final = (FrameSeen, StackSeen)

    def __init__(self, rows: Mapping[type[Event], Sequence[Row]]) -> None:
        """Prepare.

        Args:
            rows: of ``KINDS``.
        """
        frames = event_log.as_events(FrameSeen, rows[FrameSeen])
        self._frames = {each.frame_id: each for each in frames if not each.library}
        stacks = event_log.as_events(StackSeen, rows[StackSeen])
        self._stacks = {each.stack_id: each.frame_ids for each in stacks}

    def of(self, stack_id: int | None) -> SourceLocation | None:
        """Return the line of a stack, None if it is unknown."""
        return next(iter(self.stack(stack_id)), None)

    def stack(self, stack_id: int | None) -> list[SourceLocation]:
        """Return the user's lines in a stack, innermost first."""
        frames = (self._frames.get(each) for each in self._stacks.get(stack_id, ()))
        return [
            SourceLocation(
                filename=frame.filename,
                lineno=frame.lineno,
                function=frame.function,
                text=frame.text,
            )
            for frame in frames
            if frame is not None
        ]
