"""State that changed between the forward of a checkpointed region and its recomputation.

State is read when a region's forward starts and ends, and when its recomputation starts and ends.
Differences between the two starts become ``StateChanged``; state that both runs changed becomes
``EffectRepeated``. The line of a write is known for attributes of modules, which are written
through ``nn.Module.__setattr__``, a Python function.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.event_log.compare_state_readings import ABSENT, Reading, change_fields, to_value
from autogradviz.events import EffectRepeated, StateChanged, StateKind
from autogradviz.recorder.checkpoint.global_state import GlobalStateReader
from autogradviz.recorder.checkpoint.state_reader import StateReader
from autogradviz.recorder.checkpoint.value_repr import MAX_TEXT, PLAIN
from autogradviz.recorder.thread_state import thread_name
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.defer_and_redeliver_signals import callback_of_weakref, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.checkpoint.state_walk import Path
    from autogradviz.recorder.engine_interface import Runs
    from autogradviz.recorder.session import Session, SessionRef

MAX_CHANGES: Final = 40
MAX_WRITES: Final = 8
"""Different values of one attribute whose lines are kept."""

State: TypeAlias = "dict[StateKind, dict[Path, Reading]]"


class StateTable:
    """Keeps readings of the state of each region, and emits the changes."""

    def __init__(self, session: Session, runs: Runs) -> None:
        self._session = session
        self._runs = runs
        self._ref = session.ref(self)
        self._reader = StateReader(session.engine.take_snapshot)
        self._globals = GlobalStateReader()
        self._recomputing: dict[int, tuple[int, State]] = {}  # recompute_id → region, its start
        self._before: dict[int, State] = {}
        self._after: dict[int, State] = {}
        self._entered: dict[int, int] = {}  # region → seq at its start
        self._owners: dict[int, weakref.ref[Any]] = {}  # region → what its recomputation needs
        # attribute → text of the value written → seq and stack, the latest last
        self._writes: dict[str, dict[str, tuple[int, int]]] = {}
        self.watch_writes: Callable[[], None] | None = None
        """Called before the first region, to start observing writes of attributes."""

    def on_region_enter(self, region_id: int, closure: dict[str, Any], arguments: Any) -> None:
        """Read the state before a region's forward."""
        if self.watch_writes is not None:
            self.watch_writes()
        self._entered[region_id] = self._session.event_count
        self._before[region_id] = self._read(closure, arguments)

    def on_region_exit(self, region_id: int, closure: dict[str, Any], arguments: Any) -> None:
        """Read the state after a region's forward."""
        if region_id in self._before:
            self._after[region_id] = self._read(closure, arguments)

    def on_recompute_enter(
        self, region_id: int, recompute_id: int, closure: dict[str, Any], arguments: Any
    ) -> None:
        """Read the state before a recomputation, and emit its differences from the forward."""
        before = self._before.get(region_id)
        if before is None:
            return
        now = self._read(closure, arguments)
        self._recomputing[recompute_id] = (region_id, now)
        left = self._after.get(region_id, now)
        for kind, path in _differences(before, now)[:MAX_CHANGES]:
            first, second = before[kind].get(path), now[kind].get(path)
            self._session.emit(
                StateChanged, region_id, recompute_id, kind, path, *change_fields(first, second),
                first != left[kind].get(path),
                stack_id=self._writer(path, second, self._entered[region_id])
                if kind == "object" else None,
            )  # fmt: skip

    def on_recompute_exit(self, recompute_id: int, closure: dict[str, Any], arguments: Any) -> None:
        """Read the state after a recomputation, and emit the changes that both runs made."""
        region_id, begun = self._recomputing.pop(recompute_id, (-1, {}))
        before, left = self._before.get(region_id), self._after.get(region_id)
        if before is None or left is None or before["object"] == left["object"]:
            return  # the forward changed nothing
        now = self._read_objects(closure, arguments)
        for path in _differing(before["object"], left["object"]):
            was, value = before["object"][path], now.get(path)
            if path not in left["object"] or value is None:
                continue
            if begun["object"].get(path) not in {value, was, None}:
                self._session.emit(
                    EffectRepeated, region_id, recompute_id, "object", path,
                    *change_fields(was, value),
                    stack_id=self._writer(path, value, self._entered[region_id]),
                )  # fmt: skip

    def forget_with(self, owner: Any, region_id: int) -> None:
        """Remove a region when the object dies without which it cannot be recomputed."""
        self._owners[region_id] = weakref.ref(
            owner, callback_of_weakref(partial(_forget, self._ref, region_id))
        )

    def on_owner_freed(self, region_id: int) -> None:
        """Remove a region that cannot be recomputed any more."""
        self._session.always_guarded("state", self.forget, region_id)

    def forget(self, region_id: int) -> None:
        """Remove a region."""
        for table in (self._entered, self._before, self._after, self._owners):
            table.pop(region_id, None)

    def prune(self, first_seq: int) -> None:
        """Remove the regions that were entered before an event."""
        self._reader.prune()
        for region_id in list(self._entered):  # may shrink: an owner dies in another thread
            if self._entered.get(region_id, first_seq) < first_seq:
                self.forget(region_id)
        for recompute_id, (region_id, _) in self._recomputing.copy().items():
            if region_id not in self._entered:
                self._recomputing.pop(recompute_id, None)

    def _writer(self, path: Path, value: Reading | None, since: int) -> int | None:
        """Return the stack that wrote an attribute of a name since an event.

        Attributes of one name belong to many modules; the written value distinguishes them.
        """
        known = self._writes.get(path[-1], {})
        text = ABSENT if value is None else to_value(value).form
        written, stack_id = known.get(text) or next(reversed(known.values()), (-1, None))
        return stack_id if written >= since else None

    def _read(self, closure: dict[str, Any], arguments: Any) -> State:
        settings = self._globals.read(self._thread())
        return {"object": self._read_objects(closure, arguments), **settings}

    def _thread(self) -> str:
        """Return the name of this thread; of a device's that of the caller of ``backward()``."""
        found = thread_name()
        if found is not None:
            return found
        names = [call.state.name for call in self._runs.open.copy().values()]
        return next((name for name in reversed(names) if name is not None), "unknown")

    def _read_objects(self, closure: dict[str, Any], arguments: Any) -> dict[Path, Reading]:
        named = closure.get("kwargs") or {}
        with DisableTorchFunction():
            return self._reader.read(closure.get("fn"), arguments, named)

    def on_write(self, name: str, value: Any) -> None:
        """Remember the value and the line of a write to a module's attribute."""
        stack_id = self._session.stack_id()
        if stack_id is not None:
            text = repr(value)[:MAX_TEXT] if type(value) in PLAIN else ""
            known = self._writes.setdefault(name, {})
            known.pop(text, None)
            known[text] = (self._session.event_count, stack_id)
            if len(known) > MAX_WRITES:
                del known[next(iter(known))]


def _forget(table: SessionRef[StateTable], region_id: int) -> None:
    """Forget the state of a region whose owner has died, which may be after the recording."""
    if table.target is not None:
        table.target.on_owner_freed(region_id)


def _differences(before: State, now: State) -> list[tuple[StateKind, Path]]:
    """Return the paths at which two readings differ, those of the first reading first."""
    kinds = [kind for kind in before if before[kind] is not now[kind]]
    found = [(kind, path) for kind in kinds for path in _differing(before[kind], now[kind])]
    changed = [kind for kind in kinds if list(before[kind]) != list(now[kind])]
    new = [(kind, path) for kind in changed for path in now[kind] if path not in before[kind]]
    return found + new


def _differing(first: dict[Path, Reading], second: dict[Path, Reading]) -> list[Path]:
    """Return the paths in the first reading whose values differ; most values are one object."""
    others = second.values() if list(first) == list(second) else map(second.get, first)
    return [
        path
        for path, value, other in zip(first, first.values(), others, strict=True)
        if value is not other and value != other
    ]


@contextmanager
def observe_attributes(session: Session, state: StateTable) -> Iterator[None]:
    """Remember the lines that write attributes of modules, from the first region on.

    Not earlier: replacing a special method of a class updates each of its subclasses, and
    ``nn.Module`` has hundreds. A method that other code installed meanwhile is kept.
    """
    owner: Any = torch.nn.Module
    original = owner.__setattr__

    @skip_frame
    def write(module: torch.nn.Module, name: str, value: Any) -> None:
        original(module, name, value)
        if not name.startswith("__"):
            session.guarded("state", state.on_write, name, value)

    with ExitStack() as installed:

        def begin() -> None:
            nonlocal original
            with uninterrupted():
                state.watch_writes = None
                original = owner.__setattr__
                installed.enter_context(patched(owner, __setattr__=write))

        state.watch_writes = begin
        try:
            yield
        finally:
            state.watch_writes = None
