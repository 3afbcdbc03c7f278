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

_FLAT: Final = "torch/distributed/fsdp/_flat_param.py"
_MODULE: Final = "torch/nn/modules/"
_PARTS: Final = ("torch/distributed/fsdp/", "torch/optim/", _MODULE)


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
        library = {
            each.frame_id: each.filename.replace("\\", "/") for each in frames if each.library
        }
        self._library = {frame_id: _part_of_torch(name) for frame_id, name in library.items()}
        self._has_flat_parameters = any(each.endswith(_FLAT) for each in library.values())
        stacks = event_log.as_events(StackSeen, rows[StackSeen])
        self._stacks = {each.stack_id: each.frame_ids for each in stacks}

    def depends_on_shard(self, stack_id: int | None) -> bool:
        """Return whether FSDP1 or the optimizer called an op, on its part of a flat parameter.

        The parts of the ranks contain other parameters, and padding at their end, so that these ops
        differ between ranks that do the same.
        """
        if not self._has_flat_parameters:
            return False
        for frame_id in self._stacks.get(stack_id, ()):
            part = self._library.get(frame_id, _MODULE)  # a frame of the user
            if part is not None:
                return part is not _MODULE
        return False

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


def _part_of_torch(filename: str) -> str | None:
    """Return the entry of ``_PARTS`` that a file belongs to."""
    return next((part for part in _PARTS if part in filename), None)
