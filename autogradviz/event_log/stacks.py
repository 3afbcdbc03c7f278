"""Source lines, and Python stacks by id: the one reader of frames, whatever events were read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Final

from autogradviz.events import BackwardStarted, CellSeen, Event, FrameSeen, StackSeen
from autogradviz.support.source_lines_and_libraries import source_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.event_log.log import Log


_CHECKPOINT: Final = "torch/utils/checkpoint.py"
_OPTIMIZER: Final = re.compile(r"(^|/)torch/(optim/|nn/utils/clip_grad\.py$)")
_MODULE: Final = re.compile(r"(^|/)torch/nn/modules/module\.py$")
_MODULE_CALL: Final = "_wrapped_call_impl"
"""The function of PyTorch that each call of a module runs once."""
_WRAPPERS: Final = re.compile(
    r"torch/(_compile\.py|_ops\.py|overrides\.py|utils/_device\.py|_dynamo/.*)$"
    r"|autogradviz/recorder/"
)
_ENGINE: Final = re.compile(r"(^|/)(autogradviz/recorder/|torch/autograd/graph\.py$)")
"""Files between a call of ``backward()`` and what PyTorch's engine calls."""
_BACKWARD: Final = re.compile(r"(^|/)torch/autograd/__init__\.py$")
"""The file of ``backward`` and ``grad``, which create the gradient to begin with."""
_COMPARED: Final = 70
"""Frames that are compared; of very deep stacks only both ends are recorded."""
_DISPATCH: Final = "__torch_dispatch__"
"""Selective checkpointing's modes redispatch every op, so they are between it and its caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """One line of source code. ``str(location)`` is "train.py:12" or "In [3], line 2".

    Attributes:
        filename: path of the file.
        lineno: line number, from 1.
        function: qualified name of the function, "Block.forward".
        text: the line without indentation; "" if the source is not known.
        cell: number of the notebook cell, else None.

    Example:
        >>> [region] = trace.checkpoints()
        >>> region.location.text
        'h = checkpoint(self.up, x, use_reentrant=False)'
    """

    filename: str
    lineno: int
    function: str
    text: str
    cell: int | None = None

    @property
    def place(self) -> str:
        """The file name, or "In [3]" for a notebook cell."""
        return self.filename if self.cell is None else f"In [{self.cell}]"

    def __str__(self) -> str:
        if self.cell is None:
            return f"{self.filename}:{self.lineno}"
        return f"{self.place}, line {self.lineno}"


def line_of_file(
    filename: str, lineno: int, function: str, text: str | None = None, cell: int | None = None
) -> SourceLocation:
    """Return a line of a file, with its text as it is now if it was not recorded."""
    if text is None:
        text = source_line(filename, lineno).strip()
    return SourceLocation(filename=filename, lineno=lineno, function=function, text=text, cell=cell)


def where_stacks_part(
    one: Sequence[SourceLocation], other: Sequence[SourceLocation]
) -> tuple[SourceLocation, SourceLocation] | None:
    """Return the lines of the innermost function that two stacks have in common, None if of none.

    The lines of the functions around it are the same, so both lines probably ran in one call.

    Args:
        one: lines, outermost first.
        other: those of the other stack.
    """
    found = None
    for pair in zip(one, other, strict=False):
        if (pair[0].filename, pair[0].function) != (pair[1].filename, pair[1].function):
            break
        found = pair
        if pair[0].lineno != pair[1].lineno:
            break
    return found


class Locations:
    """Lines of source that events name by file and number."""

    def __init__(self, log: Log) -> None:
        self._cells = dict(log.fields(CellSeen, "filename", "cell"))
        self._known: dict[tuple[str, int, str, str], SourceLocation] = {}

    def of(
        self, filename: str, lineno: int, function: str, text: str = ""
    ) -> SourceLocation | None:
        """Return the location of a line, None if its file is unknown."""
        if not filename:
            return None
        key = (filename, lineno, function, text)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = line_of_file(*key, self._cells.get(filename))
        return found


class Stacks:
    """The stacks of one recording, by id. A line of the user is one of no installed package."""

    KINDS: Final[tuple[type[Event], ...]] = (FrameSeen, StackSeen, CellSeen)
    """The kinds of events that have lines and stacks."""

    def __init__(self, log: Log) -> None:
        self._log = log
        places = Locations(log)
        frames = log.fields(
            FrameSeen, "frame_id", "library", "filename", "lineno", "function", "text"
        )
        self._locations: dict[int, SourceLocation] = {}
        self._library: set[int] = set()
        for frame_id, library, filename, lineno, function, text in frames:
            found = places.of(filename, lineno, function, text)
            self._locations[frame_id] = found or line_of_file(filename, lineno, function, text)
            if library:
                self._library.add(frame_id)
        self._frame_ids = {
            stack_id: tuple(i for i in frame_ids if i in self._locations)
            for stack_id, frame_ids in log.fields(StackSeen, "stack_id", "frame_ids")
        }
        self._location_of: dict[int | None, SourceLocation | None] = {None: None}
        self._in_optimizer: dict[int | None, bool] = {}
        self._stacks: dict[int | None, tuple[SourceLocation, ...]] = {}
        self._optimizer_frames = self._frames_in(_OPTIMIZER)
        self._module_frames = self._frames_in(_MODULE)
        self._call_frames = {
            each
            for each in self._module_frames
            if self._locations[each].function.endswith(_MODULE_CALL)
        }
        self._engine_frames = self._frames_in(_ENGINE)
        self._backward_frames = self._frames_in(_BACKWARD)

    @cached_property
    def _backwards(self) -> set[tuple[int, ...]]:
        stack_ids = self._log.column(BackwardStarted, "stack_id")
        return {self._frame_ids.get(stack_id, ())[:_COMPARED] for stack_id in stack_ids}

    def _frames_in(self, files: re.Pattern[str]) -> set[int]:
        return {
            frame_id
            for frame_id, location in self._locations.items()
            if files.search(location.filename.replace("\\", "/"))
        }

    def location(self, stack_id: int | None) -> SourceLocation | None:
        """Return the innermost line of user code, or the innermost line of all."""
        if stack_id not in self._location_of:
            innermost = next(iter(self.stack(stack_id)), None)
            self._location_of[stack_id] = self.user_line(stack_id) or innermost
        return self._location_of[stack_id]

    def user_line(self, stack_id: int | None) -> SourceLocation | None:
        """Return the innermost line of user code, None if there is none."""
        frame_ids = self._frame_ids.get(stack_id, ())
        return next((self._locations[i] for i in frame_ids if i not in self._library), None)

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

    def callers_of_modules(self, stack_id: int | None) -> list[int]:
        """Return the line of the user that called each module, innermost first.

        Returns:
            Positions in ``user_stack``; that of no line if library code made the outermost calls.
        """
        found, position = [], 0
        for frame_id in self._frame_ids.get(stack_id, ()):
            if frame_id not in self._library:
                position += 1
            elif frame_id in self._call_frames:
                found.append(position)
        return found

    def is_engine(self, stack_id: int | None) -> bool:
        """Return whether PyTorch's engine made a call: no Python code inside a backward did.

        Such a stack is that of the call of ``backward()``, on threads of devices too. True for a
        call without a stack.
        """
        frame_ids = self._frame_ids.get(stack_id, ())
        outside = dropwhile(self._engine_frames.__contains__, frame_ids)
        return not frame_ids or tuple(islice(outside, _COMPARED)) in self._backwards

    def begins_backward(self, stack_id: int | None) -> bool:
        """Return whether ``backward`` or ``grad`` made a call itself, before the engine ran.

        False for what Python code inside of a backward calls.
        """
        frames = self._frame_ids.get(stack_id, ())
        own = takewhile(self._library.__contains__, frames)
        return not self._backward_frames.isdisjoint(own)

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

    def is_below_optimizer(self, stack_id: int | None) -> bool:
        """Return whether ``torch.optim`` is in a stack: the optimizer calls a closure too."""
        return not self._optimizer_frames.isdisjoint(self._frame_ids.get(stack_id, ()))

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
