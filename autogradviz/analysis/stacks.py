"""Python stacks: source lines by stack id."""

from __future__ import annotations

import re
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.types import SourceLocation
from autogradviz.events import BackwardStarted, CellSeen, FrameSeen, StackSeen

if TYPE_CHECKING:
    from autogradviz.event_log import Log


_CHECKPOINT: Final = "torch/utils/checkpoint.py"
_OPTIMIZER: Final = re.compile(r"(^|/)torch/(optim/|nn/utils/clip_grad\.py$)")
_MODULE: Final = re.compile(r"(^|/)torch/nn/modules/module\.py$")
_WRAPPERS: Final = re.compile(
    r"torch/(_compile\.py|_ops\.py|overrides\.py|utils/_device\.py|_dynamo/.*)$"
    r"|autogradviz/recorder/"
)
_ENGINE: Final = re.compile(r"(^|/)(autogradviz/recorder/|torch/autograd/graph\.py$)")
"""Files between a call of ``backward()`` and what PyTorch's engine calls."""
_COMPARED: Final = 70
"""Frames that are compared; of very deep stacks only both ends are recorded."""
_DISPATCH: Final = "__torch_dispatch__"
"""Selective checkpointing's modes redispatch every op, so they are between it and its caller."""


class Stacks:
    """The stacks of one recording, by id."""

    __slots__ = (
        "_backwards", "_engine_frames", "_frame_ids", "_in_optimizer", "_library", "_location_of",
        "_locations", "_module_frames", "_optimizer_frames", "_stacks",
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
        self._location_of: dict[int | None, SourceLocation | None] = {None: None}
        self._in_optimizer: dict[int | None, bool] = {}
        self._stacks: dict[int | None, tuple[SourceLocation, ...]] = {}
        self._optimizer_frames = self._frames_in(_OPTIMIZER)
        self._module_frames = self._frames_in(_MODULE)
        self._engine_frames = self._frames_in(_ENGINE)
        self._backwards = {
            self._frame_ids.get(event.stack_id, ())[:_COMPARED] for event in log.of(BackwardStarted)
        }

    def _frames_in(self, files: re.Pattern[str]) -> set[int]:
        return {
            frame_id
            for frame_id, location in self._locations.items()
            if files.search(location.filename.replace("\\", "/"))
        }

    def location(self, stack_id: int | None) -> SourceLocation | None:
        """Return the innermost line of user code, or the innermost line of all."""
        if stack_id not in self._location_of:
            frame_ids = self._frame_ids.get(stack_id, ())
            user = (i for i in frame_ids if i not in self._library)
            innermost = next(user, next(iter(frame_ids), None))
            self._location_of[stack_id] = None if innermost is None else self._locations[innermost]
        return self._location_of[stack_id]

    def location_inside(self, stack_id: int | None) -> SourceLocation | None:
        """Return the innermost line of user code inside a checkpointed region.

        The callers of checkpoint and of backward are outside. None if the region runs library
        code only.
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
        found = self._stacks.get(stack_id)
        if found is None:
            frame_ids = self._frame_ids.get(stack_id, ())
            found = self._stacks[stack_id] = tuple(self._locations[i] for i in frame_ids)
        return found

    def user_stack(self, stack_id: int | None) -> tuple[SourceLocation, ...]:
        """Return the lines of user code in a stack, innermost first."""
        frame_ids = self._frame_ids.get(stack_id, ())
        return tuple(self._locations[i] for i in frame_ids if i not in self._library)

    def is_engine(self, stack_id: int | None) -> bool:
        """Return whether PyTorch's engine made a call: no Python code inside a backward did.

        Such a stack is that of the call of ``backward()``, on threads of devices too. True for a
        call without a stack.
        """
        frame_ids = self._frame_ids.get(stack_id, ())
        outside = dropwhile(self._engine_frames.__contains__, frame_ids)
        return not frame_ids or tuple(islice(outside, _COMPARED)) in self._backwards

    def in_optimizer(self, stack_id: int | None) -> bool:
        """Return whether ``torch.optim`` or gradient clipping is the caller of a stack.

        False for a closure that ``Optimizer.step`` calls, and for the modules below it.
        """
        found = self._in_optimizer.get(stack_id)
        if found is None:
            found = self._in_optimizer[stack_id] = self._is_in_optimizer(stack_id)
        return found

    def _is_in_optimizer(self, stack_id: int | None) -> bool:
        callee: int | None = None
        for frame_id in self._frame_ids.get(stack_id, ()):
            if frame_id in self._module_frames:
                return False
            if frame_id in self._optimizer_frames:
                library = callee is None or callee in self._library
                return library or not self._locations[frame_id].function.endswith("step")
            callee = frame_id
        return False

    def calling_file(self, stack_id: int | None) -> str:
        """Return the innermost file of a stack, with forward slashes; "" if unknown.

        It may be library code. Frames of ``torch.compile`` wrappers, of modes that pass a function
        or an op on, such as that of ``set_default_device``, and of the recorder's wrappers are
        skipped.
        """
        filenames = (
            location.filename.replace("\\", "/")
            for location in self.stack(stack_id)
            if not location.function.endswith(_DISPATCH)
        )
        return next((name for name in filenames if not _WRAPPERS.search(name)), "")
