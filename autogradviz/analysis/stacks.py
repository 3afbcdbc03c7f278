"""Python stacks: from frame and stack ids to lines of source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.types import SourceLocation
from autogradviz.events import CellSeen, FrameSeen, StackSeen

if TYPE_CHECKING:
    from autogradviz.event_log import Log


_CHECKPOINT: Final = "torch/utils/checkpoint.py"
_OPTIMIZER: Final = re.compile(r"(^|/)torch/(optim/|nn/utils/clip_grad\.py$)")
_MODULE: Final = re.compile(r"(^|/)torch/nn/modules/module\.py$")
_SHIM: Final = re.compile(
    r"torch/(_compile\.py|_ops\.py|_dynamo/.*)$|autogradviz/recorder/(checkpoint/)?selective\.py$"
)
_DISPATCH: Final = "__torch_dispatch__"
"""Selective checkpointing's modes pass every op on: they stand between it and its caller."""


class Stacks:
    """All stacks of one recording, looked up by id."""

    __slots__ = (
        "_calling_modules", "_frame_ids", "_library", "_locations", "_of_optimizer", "_of_stack",
        "_optimizing",
    )  # fmt: skip

    def __init__(self, log: Log) -> None:
        frames = log.of(FrameSeen)
        cells = {event.filename: event.cell for event in log.of(CellSeen)}
        self._locations = {
            frame.frame_id: SourceLocation(
                filename=frame.filename,
                lineno=frame.lineno,
                function=frame.function,
                text=frame.text,
                cell=cells.get(frame.filename),
            )
            for frame in frames
        }
        self._library = {frame.frame_id for frame in frames if frame.library}
        self._frame_ids = {
            event.stack_id: tuple(i for i in event.frame_ids if i in self._locations)
            for event in log.of(StackSeen)
        }
        self._of_stack: dict[int | None, SourceLocation | None] = {None: None}
        self._of_optimizer: dict[int | None, bool] = {}
        self._optimizing = self._frames_in(_OPTIMIZER)
        self._calling_modules = self._frames_in(_MODULE)

    def _frames_in(self, files: re.Pattern[str]) -> set[int]:
        return {
            frame_id
            for frame_id, place in self._locations.items()
            if files.search(place.filename.replace("\\", "/"))
        }

    def location(self, stack_id: int | None) -> SourceLocation | None:
        """Return the innermost line of the user's own code, or the innermost line of all."""
        if stack_id not in self._of_stack:
            frame_ids = self._frame_ids.get(stack_id, ())
            own = (i for i in frame_ids if i not in self._library)
            innermost = next(own, next(iter(frame_ids), None))
            self._of_stack[stack_id] = None if innermost is None else self._locations[innermost]
        return self._of_stack[stack_id]

    def location_inside(self, stack_id: int | None) -> SourceLocation | None:
        """Return the innermost line of the user's own code that a checkpointed region runs.

        What called checkpoint, or backward when the region runs again, stands outside; None
        where the region runs library code alone.
        """
        for frame_id in self._frame_ids.get(stack_id, ()):
            if self._locations[frame_id].function.endswith(_DISPATCH):
                continue
            if self._locations[frame_id].filename.replace("\\", "/").endswith(_CHECKPOINT):
                return None
            if frame_id not in self._library:
                return self._locations[frame_id]
        return None

    def stack(self, stack_id: int | None) -> tuple[SourceLocation, ...]:
        """Return all lines of a stack, innermost first."""
        return tuple(self._locations[i] for i in self._frame_ids.get(stack_id, ()))

    def in_optimizer(self, stack_id: int | None) -> bool:
        """Return whether ``torch.optim`` or gradient clipping called.

        A closure that ``Optimizer.step`` calls is no part of it, nor is a module.
        """
        found = self._of_optimizer.get(stack_id)
        if found is None:
            found = self._of_optimizer[stack_id] = self._is_of_optimizer(stack_id)
        return found

    def _is_of_optimizer(self, stack_id: int | None) -> bool:
        called: int | None = None
        for frame_id in self._frame_ids.get(stack_id, ()):
            if frame_id in self._calling_modules:
                return False
            if frame_id in self._optimizing:
                own = called is None or called in self._library
                return own or not self._locations[frame_id].function.endswith("step")
            called = frame_id
        return False

    def calling_file(self, stack_id: int | None) -> str:
        """Return the file, with forward slashes, that called; "" where unknown.

        It may be a library's. Frames that ``torch.compile`` puts around its own callbacks are
        passed over, and those of dispatch modes that pass an op on.
        """
        filenames = (
            each.filename.replace("\\", "/")
            for each in self.stack(stack_id)
            if not each.function.endswith(_DISPATCH)
        )
        return next((name for name in filenames if not _SHIM.search(name)), "")
