"""The state seam: what changed around a checkpointed region between its two runs.

The surroundings are described when a region's forward begins and ends, and when its
recomputation begins and ends. What differs between the two beginnings is told (``StateChanged``),
and so is what each of the runs changed, the second on top of the first (``EffectRepeated``); with
the line of the write where that was seen: attributes of modules are written through
``nn.Module.__setattr__``, a Python function.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import EffectRepeated, StateChanged
from autogradviz.recorder.checkpoint.global_state import surroundings
from autogradviz.recorder.checkpoint.state_walk import describe
from autogradviz.recorder.checkpoint.value_repr import MAX_TEXT, PLAIN, Numbers
from autogradviz.recorder.torch_internals.dynamo import transparent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.recorder import Recorder

_NoFunctions: Final = torch._C.DisableTorchFunction  # noqa: SLF001
MAX_CHANGES: Final = 40
MAX_WRITES: Final = 8
"""Different values of one attribute whose lines are remembered."""
ABSENT: Final = "absent"

State = dict[str, tuple[str, str]]  # by name: kind and text


class StateTable:
    """Remembers the surroundings of each region as text, and tells what changed."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._numbers = Numbers()
        self._again: dict[int, tuple[int, State]] = {}  # recomputation → region, its beginning
        self._before: dict[int, State] = {}
        self._after: dict[int, State] = {}
        self._entered: dict[int, int] = {}  # region → event number at its beginning
        # attribute → what was written, as text → event number and stack, the latest last
        self._writes: dict[str, dict[str, tuple[int, int]]] = {}
        self.watch_writes: Callable[[], None] | None = None
        """Called before the first region: who writes attributes from then on matters."""

    def on_region_enter(self, region_id: int, held: dict[str, Any], arguments: Any) -> None:
        """Describe what a region can read, before its forward runs."""
        if self.watch_writes is not None:
            self.watch_writes()
            self.watch_writes = None
        self._entered[region_id] = self._recorder.event_count
        self._before[region_id] = self._read(held, arguments)

    def on_region_exit(self, region_id: int, held: dict[str, Any], arguments: Any) -> None:
        """Describe it again, after its forward ran."""
        if region_id in self._before:
            self._after[region_id] = self._read(held, arguments)

    def on_recompute_enter(
        self, region_id: int, recompute_id: int, held: dict[str, Any], arguments: Any
    ) -> None:
        """Compare with the first description; record what differs."""
        before = self._before.get(region_id)
        if before is None:
            return
        now = self._read(held, arguments)
        self._again[recompute_id] = (region_id, now)
        left = self._after.get(region_id, now)
        names = [name for name in (*before, *now) if before.get(name) != now.get(name)]
        for name in list(dict.fromkeys(names))[:MAX_CHANGES]:
            kind, was = before.get(name, (now.get(name, ("object", ""))[0], ABSENT))
            _, is_now = now.get(name, (kind, ABSENT))
            self._recorder.emit(
                StateChanged, region_id, recompute_id, kind, name, was, is_now,
                before.get(name) != left.get(name),
                stack_id=self._writer(name, is_now, self._entered[region_id])
                if kind == "object" else None,
            )  # fmt: skip

    def on_recompute_exit(self, recompute_id: int, held: dict[str, Any], arguments: Any) -> None:
        """Record what the forward changed, and the recomputation changed once more."""
        region_id, begun = self._again.pop(recompute_id, (-1, {}))
        before, left = self._before.get(region_id), self._after.get(region_id)
        if before is None or left is None:
            return
        now = self._read(held, arguments)
        for name, (kind, text) in now.items():
            was, first = before.get(name), left.get(name)
            if kind != "object" or was is None or first is None or was == first:
                continue
            if begun.get(name) not in {(kind, text), was, None}:
                self._recorder.emit(
                    EffectRepeated, region_id, recompute_id, kind, name, was[1], text,
                    stack_id=self._writer(name, text, self._entered[region_id]),
                )  # fmt: skip

    def forget(self, first_seq: int) -> None:
        """Let go of regions that were entered before an event."""
        self._numbers.forget()
        for region_id in [key for key, seq in self._entered.items() if seq < first_seq]:
            for table in (self._entered, self._before, self._after):
                table.pop(region_id, None)
        for recompute_id in [
            key for key, (region, _) in self._again.items() if region not in self._entered
        ]:
            del self._again[recompute_id]

    def _writer(self, name: str, text: str, since: int) -> int | None:
        """Return the stack that wrote an attribute of that name since an event.

        Attributes of one name belong to many modules: what was written tells them apart.
        """
        known = self._writes.get(name.rpartition(".")[2], {})
        written, stack_id = known.get(text) or next(reversed(known.values()), (-1, None))
        return stack_id if written >= since else None

    def _read(self, held: dict[str, Any], arguments: Any) -> State:
        named = held.get("kwargs") or {}
        with _NoFunctions():
            described = describe(held.get("fn"), arguments, named, self._numbers)
        found: State = {name: ("object", text) for name, text in described.items()}
        found.update(surroundings())
        return found

    def wrote(self, name: str, value: Any) -> None:
        """Note that a module's attribute was written, with what, and where."""
        if self._recorder.with_stacks:
            stack_id = self._recorder.stacks.capture(3)
            text = repr(value)[:MAX_TEXT] if type(value) in PLAIN else ""
            known = self._writes.setdefault(name, {})
            known.pop(text, None)
            known[text] = (self._recorder.event_count, stack_id)
            if len(known) > MAX_WRITES:
                del known[next(iter(known))]


def plain_arguments(frame: Any) -> tuple[Any, ...]:
    """Return a region's positional arguments; tensors, which checkpoint holds itself, as None."""
    kept = getattr(frame, "saved_args", ())
    saved = torch._C._autograd.SavedTensor  # noqa: SLF001
    return tuple([None if isinstance(value, saved) else value for value in kept])


@contextmanager
def observe_attributes(recorder: Recorder) -> Iterator[None]:
    """Note the lines that write modules' attributes, from the first region on.

    Not before: a special method that changes on a class changes on every subclass, of which
    ``nn.Module`` has hundreds. What somebody else put in its place meanwhile stays there.
    """
    owner: Any = torch.nn.Module
    original = owner.__setattr__

    @transparent
    def write(module: torch.nn.Module, name: str, value: Any) -> None:
        original(module, name, value)
        if not name.startswith("__"):
            recorder.guarded("state", recorder.state.wrote, name, value)

    def begin() -> None:
        nonlocal original
        original, owner.__setattr__ = owner.__setattr__, write

    recorder.state.watch_writes = begin
    try:
        yield
    finally:
        recorder.state.watch_writes = None
        if owner.__setattr__ is write:
            owner.__setattr__ = original
