"""Reentrant checkpoint regions, which are custom Functions.

``checkpoint(..., use_reentrant=True)`` enters no hooks. ``CheckpointFunction.forward`` runs the
region without gradients, and its ``backward`` runs it again and then enters the engine for the
result. PyTorch looks both up on the class at each call, so both are wrapped there. The
recomputation is observed through a proxy of ``ctx``: the node itself stays as it was.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from autogradviz.events import (
    RecomputeStarted,
    RecomputeStopped,
    RegionCutOff,
    RegionEntered,
    RegionExited,
)
from autogradviz.recorder.callable_names import function_name
from autogradviz.recorder.checkpoint.inspect_user_code import without_wrappers
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.identity_table import IdentityTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.checkpoint.non_reentrant_regions import RegionTable
    from autogradviz.recorder.checkpoint.state_diff import StateTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState

    Opened = tuple[ThreadState, int]


class _ContextProxy:
    """A region's ``ctx`` with another function to run, for the time of its backward."""

    def __init__(self, ctx: Any, run_function: Any) -> None:
        self._ctx = ctx
        self.run_function = run_function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class ReentrantRegions:
    """Records reentrant regions and their recomputations."""

    def __init__(self, session: Session, regions: RegionTable, state: StateTable) -> None:
        self._session = session
        self._regions = regions
        self._state = state
        self._region_of: IdentityTable[int] = IdentityTable()

    def on_enter(self, ctx: Any, function: Any, preserve_rng: Any, arguments: Any) -> Opened:
        """Record that a region's forward starts."""
        session = self._session
        state = session.threads.local.state
        region_id = self._region_of[ctx] = self._regions.next_region()
        called = without_wrappers(function)
        session.emit(
            RegionEntered, region_id, state.region[0], state.calls[-1] if state.calls else None,
            True, False, bool(preserve_rng), False, "none", function_name(called),
            self._regions.module_id(called),
            stack_id=session.stack_id(),
        )  # fmt: skip
        state.regions.append((region_id, state.region[1]))
        closure = {"fn": function}
        session.guarded(
            "state", self._state.on_region_enter, region_id, closure, _without_tensors(arguments)
        )
        session.guarded("state", self._state.forget_with, ctx, region_id)
        return state, region_id

    def on_cut_off(self, opened: Opened, arguments: Any, result: Any) -> None:
        """Record that the region is not part of the graph although gradients are enabled."""
        state, region_id = opened
        if not state.reentrant_grad_enabled:
            return
        with DisableTorchFunction():
            given = any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
        listed = result if isinstance(result, tuple) else (result,)
        if not given:
            self._session.emit(RegionCutOff, region_id, "arguments")
        elif result is not None and not any(isinstance(r, torch.Tensor) for r in listed):
            self._session.emit(RegionCutOff, region_id, "results")

    def on_exit(self, opened: Opened, function: Any, arguments: Any, *, failed: bool) -> None:
        """Record that a region's forward ends."""
        session = self._session
        state, region_id = opened
        _close(state, (region_id, None))
        session.emit(RegionExited, region_id, failed)
        closure = {"fn": function}
        session.guarded(
            "state", self._state.on_region_exit, region_id, closure, _without_tensors(arguments)
        )

    def on_recompute_enter(self, ctx: Any, function: Any, arguments: Any) -> Opened:
        """Record that a region's recomputation starts."""
        session = self._session
        state = session.threads.local.state
        region_id = self._region_of.get(ctx)
        recompute_id = self._regions.next_recompute()
        running = session.engine.innermost_run() or (None, None)
        session.emit(
            RecomputeStarted, recompute_id, region_id, running[0], running[1],
            self._regions.exec_group(),
            stack_id=session.stack_id(),
        )  # fmt: skip
        state.regions.append((region_id, recompute_id))
        if region_id is not None:
            closure = {"fn": function}
            session.guarded(
                "state", self._state.on_recompute_enter,
                region_id, recompute_id, closure, _without_tensors(arguments),
            )  # fmt: skip
        return state, recompute_id

    def on_recompute_exit(
        self, opened: Opened, function: Any, arguments: Any, *, failed: bool
    ) -> None:
        """Record that a region's recomputation ends."""
        session = self._session
        state, recompute_id = opened
        _close(state, (None, recompute_id))
        session.emit(RecomputeStopped, recompute_id, "error" if failed else "completed")
        closure = {"fn": function}
        session.guarded(
            "state", self._state.on_recompute_exit, recompute_id, closure,
            _without_tensors(arguments),
        )  # fmt: skip


def _close(state: ThreadState, opened: tuple[int | None, int | None]) -> None:
    """Close a region or recomputation, and all that an exception has left open in it."""
    region_id, recompute_id = opened
    for depth in range(len(state.regions) - 1, -1, -1):
        found = state.regions[depth]
        if found[1] == recompute_id if region_id is None else found[0] == region_id:
            del state.regions[depth:]
            return


def _without_tensors(arguments: Any) -> tuple[Any, ...]:
    return tuple([None if isinstance(value, torch.Tensor) else value for value in arguments])


@contextmanager
def observe_reentrant(session: Session, table: ReentrantRegions) -> Iterator[None]:
    """Record reentrant regions while the context is open."""
    forward, backward = CheckpointFunction.forward, CheckpointFunction.backward
    apply = CheckpointFunction.apply  # inherited

    @skip_frame
    def wrapped_forward(ctx: Any, run_function: Any, preserve: Any, *args: Any) -> Any:
        opened = session.guarded("checkpoint", table.on_enter, ctx, run_function, preserve, args)
        if opened is None:
            return forward(ctx, run_function, preserve, *args)
        failed = True
        try:
            result = forward(ctx, run_function, preserve, *args)
            failed = False
        finally:
            session.guarded("checkpoint", table.on_exit, opened, run_function, args, failed=failed)
        session.guarded("checkpoint", table.on_cut_off, opened, args, result)
        return result

    @skip_frame
    def wrapped_apply(*args: Any) -> Any:
        state = session.threads.local.state
        outer, state.reentrant_grad_enabled = state.reentrant_grad_enabled, torch.is_grad_enabled()
        try:
            return apply(*args)
        finally:
            state.reentrant_grad_enabled = outer

    @skip_frame
    def wrapped_backward(ctx: Any, *gradients: Any) -> Any:
        if not session.observes():
            return backward(ctx, *gradients)
        function = ctx.run_function

        @skip_frame
        def recompute(*args: Any) -> Any:
            opened = session.guarded("checkpoint", table.on_recompute_enter, ctx, function, args)
            if opened is None:
                return function(*args)
            failed = True
            try:
                result = function(*args)
                failed = False
            finally:
                session.guarded(
                    "checkpoint", table.on_recompute_exit, opened, function, args, failed=failed
                )
            return result

        return backward(_ContextProxy(ctx, recompute), *gradients)

    with patched(
        CheckpointFunction,
        forward=staticmethod(wrapped_forward),
        backward=staticmethod(wrapped_backward),
        apply=wrapped_apply,
    ):
        yield
