"""Non-reentrant checkpoint regions, their recomputations, and the state around both.

Checkpoint enters one pair of saved-tensor hooks for a region's forward and another one for its
recomputation. The exception at the exit of the second distinguishes an early stop from a failure.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import (
    NO_ID,
    RecomputeStarted,
    RecomputeStopped,
    RegionEntered,
    RegionExited,
)
from autogradviz.recorder.callable_names import function_name
from autogradviz.recorder.checkpoint.inspect_user_code import without_wrappers
from autogradviz.recorder.torch_internals.checkpoint_frames_and_module_calls import (
    closure_vars,
    determinism_check,
    has_error_callback,
    plain_arguments,
    saved_arguments,
    stops_early,
)
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import (
    CheckpointHook,
    DisableTorchFunction,
    RecomputationHook,
    StopRecomputationError,
    current_exec_group,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import version_of
from autogradviz.support.defer_and_redeliver_signals import callback_of_weakref
from autogradviz.support.identity_table import IdentityTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.checkpoint.state_diff import StateTable
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.saved_tensors.hooks import Plan
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
    from autogradviz.recorder.session import Session, SessionRef


_FRAME = "_autogradviz_frame"


class RegionTable:
    """Assigns ids to the regions and recomputations of both kinds of checkpoint."""

    def __init__(self, modules: ModuleTable) -> None:
        self._find_module = modules.find
        self._regions = 0
        self._recomputes = 0
        self._numbered = 0  # groups
        self._groups: IdentityTable[int] = IdentityTable()

    def next_region(self) -> int:
        """Return the id of a new region."""
        self._regions += 1
        return self._regions - 1

    def next_recompute(self) -> int:
        """Return the id of a new recomputation."""
        self._recomputes += 1
        return self._recomputes - 1

    def exec_group(self) -> int | None:
        """Return the id of the ``GraphExecGroup`` that backward runs in."""
        group = current_exec_group()
        if group is None:
            return None
        number = self._groups.get(group)
        if number is None:
            number = self._groups[group] = self._numbered
            self._numbered += 1
        return number

    def module_id(self, function: Any) -> int | None:
        """Return the id of the module that a function is, or belongs to."""
        owner = function.__self__ if type(function) is MethodType else function
        return self._find_module(owner) if isinstance(owner, torch.nn.Module) else None


class CheckpointPairs:
    """Records regions, which begin and end with a pair of saved-tensor hooks."""

    def __init__(
        self, session: Session, regions: RegionTable, state: StateTable, arguments: ArgumentTable
    ) -> None:
        self._session = session
        self._regions = regions
        self._state = state
        self._arguments = arguments
        self._region_of: IdentityTable[int] = IdentityTable()

    def plan(self, hooks: Any) -> Plan:
        """Return the region or recomputation that a pair begins."""
        frame = getattr(hooks, _FRAME, None)
        if isinstance(hooks, CheckpointHook):
            region_id = self._regions.next_region()
            if frame is not None:
                self._region_of[frame] = region_id
            return "checkpoint", region_id, None
        recompute_id = self._regions.next_recompute()
        target = frame() if frame is not None else None
        region = None if target is None else self._region_of.get(target)
        return "recompute", region, recompute_id

    def on_enter(self, hooks: Any, plan: Plan) -> None:
        """Record that a region's forward or recomputation starts."""
        _, region_id, recompute_id = plan
        if isinstance(hooks, CheckpointHook):
            self._enter_region(getattr(hooks, _FRAME, None), region_id)
        else:
            self._enter_recompute(_target(hooks), region_id, recompute_id)

    def _enter_region(self, frame: Any, region_id: int | None) -> None:
        session, state = self._session, self._session.threads.local.state
        stack_id = session.stack_id()
        closure = closure_vars(frame)
        function = without_wrappers(closure.get("fn"))
        session.emit(
            RegionEntered, region_id, state.region[0], state.calls[-1] if state.calls else None,
            False, stops_early(frame), bool(closure.get("preserve_rng_state", True)),
            has_error_callback(frame), determinism_check(frame),
            function_name(function), self._regions.module_id(function),
            stack_id=stack_id,
        )  # fmt: skip
        state.regions.append((region_id, state.region[1]))
        session.guarded("state", self._read_state, self._state.on_region_enter, region_id, frame)
        if frame is not None and region_id is not None:
            session.guarded("state", self._state.forget_with, frame, region_id)
        session.guarded(
            "checkpoint", self._arguments.add, frame, (region_id, state.region[1]), stack_id
        )

    def _enter_recompute(self, frame: Any, region_id: int | None, recompute_id: int | None) -> None:
        session, state = self._session, self._session.threads.local.state
        stack_id = session.stack_id()
        running = session.engine.innermost_run() or (None, None)
        session.emit(
            RecomputeStarted, recompute_id, region_id, running[0], running[1],
            self._regions.exec_group(),
            stack_id=stack_id,
        )  # fmt: skip
        state.regions.append((region_id, recompute_id))
        if region_id is not None and frame is not None:
            session.guarded(
                "state", self._state.on_recompute_enter,
                region_id, recompute_id, closure_vars(frame), plain_arguments(frame),
            )  # fmt: skip

    def on_exit(self, hooks: Any, error: type[BaseException] | None) -> None:
        """Record that a region's forward or recomputation ends."""
        session, state = self._session, self._session.threads.local.state
        if not state.regions:
            return
        region_id, recompute_id = state.regions.pop()
        if isinstance(hooks, CheckpointHook):
            session.emit(RegionExited, region_id, error is not None)
            frame = getattr(hooks, _FRAME, None)
            session.guarded("state", self._read_state, self._state.on_region_exit, region_id, frame)
        else:
            early = error is not None and issubclass(error, StopRecomputationError)
            outcome = "completed" if error is None else "early_stop" if early else "error"
            session.emit(RecomputeStopped, recompute_id, outcome)
            read = self._state.on_recompute_exit
            session.guarded("state", self._read_state, read, recompute_id, _target(hooks))

    def _read_state(self, read: Any, number: int | None, frame: Any) -> None:
        if number is not None and frame is not None:
            read(number, closure_vars(frame), plain_arguments(frame))


def _target(hooks: Any) -> Any:
    """Return the frame that a recomputation's pair refers to weakly."""
    return getattr(hooks, _FRAME, lambda: None)()


@contextmanager
def observe_checkpoint_frames() -> Iterator[None]:
    """Keep the frame of each of checkpoint's pairs on the pair, while the context is open."""

    def keeping_frame(init: Any) -> Any:
        @skip_frame
        def wrapped_init(hooks: Any, frame: Any, *rest: Any) -> None:
            init(hooks, frame, *rest)
            setattr(hooks, _FRAME, frame)

        return wrapped_init

    with (
        patched(CheckpointHook, __init__=keeping_frame(CheckpointHook.__init__)),
        patched(RecomputationHook, __init__=keeping_frame(RecomputationHook.__init__)),
    ):
        yield


# --- the tensor arguments that a checkpointed region keeps instead of its activations -------------


class ArgumentTable:
    """Records the arguments that checkpoint frames hold, and their release."""

    def __init__(self, session: Session, saves: SaveTable) -> None:
        self._session = session
        self._saves = saves
        self._frames: dict[int, weakref.ref[Any]] = {}  # by the first of their saves
        self._ref = session.ref(self)

    def add(self, frame: Any, region: tuple[int | None, int | None], stack_id: int | None) -> None:
        """Record the tensors that a frame keeps for its recomputation."""
        with DisableTorchFunction():
            saved_ids = self._save(frame, region, stack_id)
        if saved_ids:
            released = callback_of_weakref(partial(_on_frame_freed, self._ref, saved_ids))
            self._frames[saved_ids[0]] = weakref.ref(frame, released)

    def _save(
        self, frame: Any, region: tuple[int | None, int | None], stack_id: int | None
    ) -> list[int]:
        saved_ids = []
        for index, tensor in saved_arguments(frame):
            version = version_of(tensor)
            saved_id = self._saves.new(
                tensor,
                packed_by="checkpoint",
                slot=f"args[{index}]",
                version=None if version == NO_ID else version,
                region=region,
                stack_id=stack_id,
            )
            saved_ids.append(saved_id)
        return saved_ids

    def on_frame_freed(self, saved_ids: list[int]) -> None:
        """Record that a frame died with its arguments."""
        self._session.always_guarded("release", self._release, saved_ids)

    def _release(self, saved_ids: list[int]) -> None:
        self._frames.pop(saved_ids[0], None)
        thread = self._session.threads.local.state.number
        for saved_id in saved_ids:
            self._saves.released(saved_id, thread)


def _on_frame_freed(table: SessionRef[ArgumentTable], saved_ids: list[int]) -> None:
    """Record that a frame has died, which may be after the recording."""
    if table.target is not None:
        table.target.on_frame_freed(saved_ids)
