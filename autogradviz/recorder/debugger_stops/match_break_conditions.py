"""Compares events with the conditions of ``record(break_on=...)`` and opens the debugger.

The tables of the recorder call it after they have recorded an event, outside of what catches their
failures: the user can quit the program in the debugger, by an exception.
"""

from __future__ import annotations

import builtins
import math
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.breakpoints.objects_at_stop import LiveSave, Stop
from autogradviz.breakpoints.stop_condition import is_of_file
from autogradviz.events import OpCalled, field_names
from autogradviz.recorder.debugger_stops.open_debugger import open_debugger, reason_without_debugger
from autogradviz.recorder.debugger_stops.saved_tensors_at_breakpoint import (
    nodes_below,
    saves_of_node,
    shares_memory,
    storage_address,
)
from autogradviz.recorder.modules_and_tensors_inside import tensors_inside
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd
from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    current_autograd_node,
    get_sequence_nr,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import FREED, why_unreadable
from autogradviz.recorder.user_code_frames import cell_number, is_user_code
from autogradviz.support.locks_gc_and_stderr import new_lock, print_line
from autogradviz.support.op_names import packet_name, short_op_name
from autogradviz.support.source_lines_and_libraries import source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import CodeType, FrameType

    from autogradviz.breakpoints.stop_condition import StopCondition
    from autogradviz.recorder.backward.training_steps import StepTable
    from autogradviz.recorder.engine_interface import RecentTensors, TensorIds
    from autogradviz.recorder.session import Session

NAME: Final = "stopped"
"""The variable that holds the ``Stop`` in the debugger, where no variable of the user hides it."""

_PHASE: Final = field_names(OpCalled).index("phase")
_UNINITIALIZED: Final = ("empty", "new_empty")
"""Ops whose result has no contents yet."""


class StopTable:
    """The conditions of one recording."""

    def __init__(self, session: Session, conditions: Sequence[StopCondition]) -> None:
        self._session = session
        self._conditions = conditions
        self._by_kind = {
            kind: [each for each in conditions if each.kind == kind]
            for kind in ("write", "op", "line", "module", "node", "not-finite")
        }
        self._of_ops = any(self._by_kind[kind] for kind in ("write", "op", "line", "not-finite"))
        self._matches: Counter[tuple[int, int | None]] = Counter()  # by condition and step
        self._matched: set[int] = set()
        self._named: dict[str, torch.Tensor] = {}
        self._executed: dict[tuple[CodeType, int], tuple[int, int, str]] = {}
        """The last execution of a line: its frame, newest instruction and first operator."""
        self._waiting: set[tuple[CodeType, int]] = set()
        """Lines in execution, of which no operator had tensors yet."""
        self._lock = new_lock()
        """Held while the debugger is open: another thread that matches waits for its turn."""
        self._stopped_thread: int | None = None
        self._op_threads: set[int] = set()
        self._was_refused = False  # no terminal, which is printed once
        self._seen = Counter[str]()
        self._tensors: TensorIds
        self._recent: RecentTensors
        self._version_at_save: Callable[[int, int], int | None]
        self.steps: StepTable
        """The training steps; set before the recording starts."""

    def connect(
        self,
        tensors: TensorIds,
        recent: RecentTensors,
        version_saved: Callable[[int, int], int | None],
    ) -> None:
        """Set the tables of the engine.

        Args:
            tensors: ids of tensors.
            recent: the way to live graphs.
            version_saved: returns the version at which the node of a sequence number saved a
                tensor.
        """
        self._tensors = tensors
        self._recent = recent
        self._version_at_save = version_saved

    # --- what the tables of the recorder call -----------------------------------------------

    def after_op(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        error: BaseException | None,
        row: Any,
        call: Any,
    ) -> None:
        """Stop if an operator that was recorded matches.

        Args:
            func: the operator.
            args: its positional arguments.
            kwargs: its keyword arguments.
            result: what it returned.
            error: the exception that it raised.
            row: its row of ``OpCalled``.
            call: the ``Call`` of the dispatch mode.
        """
        if row is None or self._is_stopped or not self._of_ops:
            return
        self._seen["operator"] += 1
        self._op_threads.add(threading.get_ident())
        with DisableTorchFunction():
            frame = user_frame()
            reason = self._session.guarded(
                "break_on", self._reason_to_stop, str(func), args, kwargs, result, row, call, frame
            )
        if reason is None:
            return
        signature, written = call[0], {id(tensor): version for _, tensor, version in call[7]}
        versions = tuple(
            (version, version + (id(tensor) in written and signature.bumps_later and not error))
            for tensor, version in zip(_tensors((args, kwargs)), call[6], strict=False)
        )
        inputs = [*_tensors((args, kwargs)), *_tensors(result)]
        self._stop(
            frame,
            reason,
            partial(
                Stop,
                seq=row[0],
                op=str(func),
                args=args,
                kwargs=kwargs,
                result=result,
                error=error,
                versions=versions,
                read_saved=partial(self._saves_sharing, inputs),
            ),
        )

    def module_entered(self, module: torch.nn.Module, name: str) -> None:
        """Stop if a module that is entered matches; the caller has its arguments."""
        if self._is_stopped:
            return
        self._learn_names(module)
        if not self._by_kind["module"]:
            return
        self._seen["module"] += 1
        bare = name.partition(".")[2]  # without a model, names begin with the class of the root
        for condition in self._by_kind["module"]:
            names = (name, bare, type(module).__name__)
            if _is_any(names, condition.name) and self._is_counted(condition):
                caller = sys._getframe(2).f_locals  # noqa: SLF001 - the wrapper of __call__
                self._stop(
                    user_frame(),
                    f"module {name or type(module).__name__} is entered",
                    partial(
                        Stop,
                        seq=self._session.event_count - 1,
                        module=module,
                        args=caller.get("args", ()),
                        kwargs=caller.get("kwargs", {}),
                        read_saved=list,
                    ),
                )
                return

    def node_started(self, gradients: Sequence[Any]) -> None:
        """Stop if the node that is about to run matches."""
        if self._is_stopped or not self._by_kind["node"]:
            return
        node: Any = current_autograd_node()
        if node is None:
            return
        self._seen["node"] += 1
        name = node.name()
        for condition in self._by_kind["node"]:
            names = (name, name.removesuffix("0"), name.rpartition("::")[2])
            if _is_any(names, condition.name) and self._is_counted(condition):
                self._stop(
                    user_frame(),
                    f"{name} is about to run in backward",
                    partial(
                        Stop,
                        seq=self._session.event_count - 1,
                        node=node,
                        args=tuple(gradients),
                        read_saved=partial(self._saves_of, node),
                    ),
                )
                return

    def unmatched(self) -> list[str]:
        """Return a line for each condition that never matched; nothing can match any more."""
        self._forget()
        lines = []
        for condition in self._conditions:
            if id(condition) in self._matched:
                continue
            total = sum(n for (key, _), n in self._matches.items() if key == id(condition))
            seen = ", ".join(f"{n} {what}{'s' * (n != 1)}" for what, n in self._seen.items())
            if total:
                why = f"it matched {total} time{'s' * (total != 1)} without the number"
            elif condition.kind == "write" and condition.name and self._find(condition) is None:
                why = f"no module that was called has a parameter or buffer {condition.name!r}"
            else:
                why = f"among {seen}" if seen else "nothing was recorded that it applies to"
                others = self._session.threads.count - max(1, len(self._op_threads))
                if self._of_ops and others > 0 and condition.kind not in {"module", "node"}:
                    threads = f"{others} other thread{'s' * (others != 1)}"
                    why += f"; operators of {threads} were not recorded"
            lines.append(f"break_on: {condition.text!r} never matched ({why})")
        return lines

    # --- conditions -------------------------------------------------------------------------

    def _reason_to_stop(
        self,
        op: str,
        args: Any,
        kwargs: Any,
        result: Any,
        row: Any,
        call: Any,
        frame: FrameType | None,
    ) -> str | None:
        """Return why an operator matches, None if it does not."""
        found = None
        for condition in self._by_kind["write"]:
            if call[7] and self._is_written(condition, [each for _, each, _ in call[7]]):
                found = self._counted(condition, f"{op} wrote {_target(condition)}") or found
        for condition in self._by_kind["op"]:
            if is_op(op, condition.name) and _is_at(condition, frame, row[_PHASE]):
                found = self._counted(condition, f"{op} was called{condition.note}") or found
        for condition in self._by_kind["line"]:
            if (
                frame is not None
                and _is_at(condition, frame, "")
                and self._is_first_of_line(op, frame, _tensors((args, kwargs, result)))
            ):
                found = self._counted(condition, f"{op} is the first operator of the line") or found
        for condition in self._by_kind["not-finite"]:
            with below_autograd():
                problem = self._first_not_finite(op, args, kwargs, result)
            if problem is not None:
                found = self._counted(condition, f"{op} gave {problem}") or found
        return found

    def _first_not_finite(self, op: str, args: Any, kwargs: Any, result: Any) -> str | None:
        """Return "NaN" or "an infinity" if an op was the first to give one, None otherwise.

        An infinity that the op received, as a mask has it, is not the op's own.
        """
        if is_op(op, f"{_UNINITIALIZED[0]}*") or is_op(op, f"{_UNINITIALIZED[1]}*"):
            return None
        constants = [each for each in _numbers((args, kwargs)) if isinstance(each, float)]
        if not all(map(math.isfinite, constants)):  # the program asked for it
            return None
        bad = [each for each in self._readable(result) if not _is_finite(each)]
        if not bad:
            return None
        if any(bool(torch.isnan(each).any()) for each in bad):
            return "NaN"
        own = {storage_address(each) for each in bad}
        given = self._readable((args, kwargs))
        if any(storage_address(each) not in own and not _is_finite(each) for each in given):
            return None
        return "an infinity"

    def _readable(self, value: Any) -> list[torch.Tensor]:
        """Return the tensors in a value whose entries can be read; the others are reported."""
        found = []
        for tensor in _tensors(value):
            kind = why_unreadable(tensor)
            if not kind:
                found.append(tensor)
            elif kind != FREED:
                message = f"NaN and infinities are not looked for in {kind}"
                self._session.limit("break_on", message)
        return found

    def _counted(self, condition: StopCondition, reason: str) -> str | None:
        return reason if self._is_counted(condition) else None

    def _is_counted(self, condition: StopCondition) -> bool:
        """Count a match; return whether it is the one that the condition asks for."""
        if condition.step is not None and condition.step != self.steps.count:
            return False
        key = (id(condition), condition.step)
        self._matches[key] += 1
        if condition.count is not None and self._matches[key] != condition.count:
            return False
        self._matched.add(id(condition))
        return True

    def _is_first_of_line(self, op: str, frame: FrameType, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether an operator is the first one with tensors in an execution of its line.

        An optimizer begins with a mark for the profiler, which has none.
        """
        line = frame.f_code, frame.f_lineno
        if self._is_new(op, frame):
            self._waiting.add(line)
        if line not in self._waiting or not tensors:
            return False
        self._waiting.remove(line)
        return True

    def _is_new(self, op: str, frame: FrameType) -> bool:
        """Return whether an operator is the first one in this execution of its line.

        Several operators of one call have the same instruction, as those of two executions have:
        the first one, called again, begins another execution.
        """
        key = (frame.f_code, frame.f_lineno)
        before = self._executed.get(key)
        if before is not None:
            frame_id, instruction, first = before
            same = frame_id == id(frame) and op != first and frame.f_lasti >= instruction
            if same:
                self._executed[key] = frame_id, frame.f_lasti, first
                return False
        self._executed[key] = id(frame), frame.f_lasti, op
        return True

    def _is_written(self, condition: StopCondition, written: Sequence[torch.Tensor]) -> bool:
        target = self._find(condition)
        return target is not None and (
            any(each is target for each in written) or shares_memory(target, written)
        )

    def _find(self, condition: StopCondition) -> torch.Tensor | None:
        """Return the tensor that a condition watches, None if it is dead or unknown."""
        if condition.tensor is not None:
            return condition.tensor()
        return self._named.get(condition.name)

    def _learn_names(self, module: torch.nn.Module) -> None:
        """Find the watched parameters of a module that is called, by name."""
        for condition in self._by_kind["write"]:
            if condition.name and condition.name not in self._named:
                self.name_tensors(module)
                return

    def name_tensors(self, module: torch.nn.Module) -> None:
        """Find the watched parameters and buffers of a module, by name."""
        names = {each.name for each in self._by_kind["write"] if each.name} - {*self._named}
        prefix = f"{type(module).__name__}."
        for table in ("_parameters", "_buffers"):
            for name, tensor in tensors_inside(module, table):
                for wanted in {name, prefix + name} & names:
                    self._named[wanted] = tensor

    # --- the stop ---------------------------------------------------------------------------

    def _stop(self, frame: FrameType | None, reason: str, make: Callable[..., Stop]) -> None:
        """Open the debugger, or print one line if there is no terminal."""
        shown = frame or sys._getframe(1)  # noqa: SLF001 - a thread of C++ has no user frame
        cell = cell_number(shown.f_code.co_filename)
        file = f"{Path(shown.f_code.co_filename).name}:"
        place = f"{file if cell is None else f'In [{cell}], line '}{shown.f_lineno}"
        name = getattr(shown.f_code, "co_qualname", shown.f_code.co_name)
        problem = reason_without_debugger()
        if problem is not None:
            if self._was_refused:
                return
            self._was_refused = True
            print_line(f"break_on: {place} in {name}: {reason}; no debugger, because {problem}")
            return
        with self._lock:
            details = f"the variable {NAME} has the details"
            print_line(f"break_on: {place} in {name}: {reason}; {details}")
            vars(builtins)[NAME] = make(reason=reason, place=place)
            steps = True
            try:
                steps = open_debugger(shown, self._paused)
            finally:
                if not steps:
                    self._forget()

    def _forget(self) -> None:
        """Remove the variable, which keeps tensors alive."""
        vars(builtins).pop(NAME, None)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Record nothing that the user calls in the debugger."""
        state = self._session.threads.local.state
        with self._lock:
            before = state.suspended, self._stopped_thread
            state.suspended, self._stopped_thread = True, threading.get_ident()
            try:
                yield
            finally:
                state.suspended, self._stopped_thread = before
                # No op may pass for the one that created the newest node.
                state.sequence_nr = get_sequence_nr()

    @property
    def _is_stopped(self) -> bool:
        """Whether the debugger is open on this thread."""
        return self._stopped_thread == threading.get_ident()

    def _saves_sharing(self, tensors: Sequence[torch.Tensor]) -> list[LiveSave]:
        """Return the saved tensors of the live graph that share memory with some tensors."""
        newest = get_sequence_nr() - 1
        return [
            each
            for node in nodes_below(self._recent.nodes(), newest)
            for each in saves_of_node(node, self._version_saved)
            if shares_memory(each.value, tensors)
        ]

    def _saves_of(self, node: Any) -> list[LiveSave]:
        return list(saves_of_node(node, self._version_saved))

    def _version_saved(self, node: Any, tensor: torch.Tensor) -> int | None:
        number = node._sequence_nr()  # noqa: SLF001 - has no public name
        return self._version_at_save(number, self._tensors.intern(tensor))


def user_frame() -> FrameType | None:
    """Return the innermost frame of the user's code, None if this thread has none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way
    while frame is not None and not is_user_code(frame.f_code):
        frame = frame.f_back
    return frame


def is_op(op: str, pattern: str) -> bool:
    """Return whether "add_", "aten.add_" or "aten.add_.Tensor" names an operator."""
    return _is_any((op, packet_name(op), short_op_name(op)), pattern)


def _is_any(names: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _is_at(condition: StopCondition, frame: FrameType | None, phase: str) -> bool:
    """Return whether a frame is at the line of a condition, and the phase is its phase."""
    if condition.phase and condition.phase != phase:
        return False
    if not condition.filename:
        return True
    if frame is None or frame.f_lineno != condition.lineno:
        return False
    path = source_file(frame.f_code)
    if is_of_file(path, condition.filename):
        return True
    # A notebook's cell is another file in each kernel, and a program may have been moved.
    same_name = Path(path).name == Path(condition.filename).name
    return same_name and condition.source != "" and condition.source == _text_at(path, frame)


def _text_at(path: str, frame: FrameType) -> str:
    return source_line(path, frame.f_lineno).strip()


def _target(condition: StopCondition) -> str:
    return condition.name or "the watched tensor"


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in arguments or results, in their order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _is_finite(tensor: torch.Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    return bool(torch.isfinite(tensor).all())


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _numbers(item)
    elif not isinstance(value, torch.Tensor):
        yield value
