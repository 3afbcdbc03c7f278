"""The reentrant checkpoint seam: regions that are custom Functions.

``checkpoint(..., use_reentrant=True)`` pushes no hooks. ``CheckpointFunction.forward`` runs the
region without gradients, and its ``backward`` runs it again and then enters the engine for what
it made. PyTorch looks both up on the class at each call, so both are wrapped there. What runs
again is watched through a stand-in for ``ctx``: the node itself stays as it was.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.checkpoint import CheckpointFunction

from autogradviz.events import (
    RecomputeStarted,
    RecomputeStopped,
    RegionCutOff,
    RegionEntered,
    RegionExited,
)
from autogradviz.recorder.checkpoint.frame_info import function_name
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.threads import ThreadState

    Opened = tuple[ThreadState, int]

_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001


class _WatchedContext:
    """Stands in for a region's ``ctx`` while its backward runs: all is its own, but one thing."""

    def __init__(self, ctx: Any, run_function: Any) -> None:
        self._ctx = ctx
        self.run_function = run_function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class ReentrantTable:
    """Knows which region each reentrant checkpoint's node stands for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._region_of: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def enter(self, ctx: Any, function: Any, preserve_rng: Any, arguments: Any) -> Opened:
        """Record that a region's forward begins."""
        recorder = self._recorder
        state = recorder.threads.state()
        region_id = self._region_of[ctx] = recorder.regions.next_region()
        recorder.emit(
            RegionEntered, region_id, state.region[0], state.calls[-1] if state.calls else None,
            True, False, bool(preserve_rng), False, "none", function_name(function),
            recorder.regions.module_id(function),
            stack_id=recorder.stacks.capture(3) if recorder.with_stacks else None,
        )  # fmt: skip
        state.regions.append((region_id, state.region[1]))
        held = {"fn": function}
        recorder.guarded(
            "state", recorder.state.on_region_enter, region_id, held, _plain(arguments)
        )
        return state, region_id

    def cut_off(self, opened: Opened, arguments: Any, result: Any) -> None:
        """Record that autograd does not follow the region, where gradients are on."""
        state, region_id = opened
        if not state.follows:
            return
        with _NoFunctions():
            given = any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
        listed = result if isinstance(result, tuple) else (result,)
        if not given:
            self._recorder.emit(RegionCutOff, region_id, "arguments")
        elif result is not None and not any(isinstance(r, torch.Tensor) for r in listed):
            self._recorder.emit(RegionCutOff, region_id, "results")

    def leave(self, opened: Opened, function: Any, arguments: Any, *, failed: bool) -> None:
        """Record that a region's forward ends."""
        recorder = self._recorder
        state, region_id = opened
        _close(state, (region_id, None))
        recorder.emit(RegionExited, region_id, failed)
        held = {"fn": function}
        recorder.guarded("state", recorder.state.on_region_exit, region_id, held, _plain(arguments))

    def enter_again(self, ctx: Any, function: Any, arguments: Any) -> Opened:
        """Record that a region begins to run again."""
        recorder = self._recorder
        state = recorder.threads.state()
        region_id = self._region_of.get(ctx)
        recompute_id = recorder.regions.next_recompute()
        running = state.running[-1] if state.running else (None, None)
        recorder.emit(
            RecomputeStarted, recompute_id, region_id, running[0], running[1],
            recorder.regions.exec_group(),
            stack_id=recorder.stacks.capture(3) if recorder.with_stacks else None,
        )  # fmt: skip
        state.regions.append((region_id, recompute_id))
        if region_id is not None:
            held = {"fn": function}
            recorder.guarded(
                "state", recorder.state.on_recompute_enter,
                region_id, recompute_id, held, _plain(arguments),
            )  # fmt: skip
        return state, recompute_id

    def leave_again(self, opened: Opened, function: Any, arguments: Any, *, failed: bool) -> None:
        """Record that a region's second run ends."""
        recorder = self._recorder
        state, recompute_id = opened
        _close(state, (None, recompute_id))
        recorder.emit(RecomputeStopped, recompute_id, "error" if failed else "completed")
        held = {"fn": function}
        recorder.guarded(
            "state", recorder.state.on_recompute_exit, recompute_id, held, _plain(arguments)
        )


def _close(state: ThreadState, opened: tuple[int | None, int | None]) -> None:
    """Leave a region or recomputation, and whatever an exception left open in it."""
    region_id, recompute_id = opened
    for depth in range(len(state.regions) - 1, -1, -1):
        found = state.regions[depth]
        if found[1] == recompute_id if region_id is None else found[0] == region_id:
            del state.regions[depth:]
            return


def _plain(arguments: Any) -> tuple[Any, ...]:
    return tuple([None if isinstance(value, torch.Tensor) else value for value in arguments])


@contextmanager
def observe_reentrant(recorder: Recorder) -> Iterator[None]:
    """Record regions of the reentrant kind while the context is open."""
    first, backward = CheckpointFunction.forward, CheckpointFunction.backward
    apply = CheckpointFunction.apply  # it is inherited
    table = ReentrantTable(recorder)

    @transparent
    def watched_forward(ctx: Any, run_function: Any, preserve: Any, *args: Any) -> Any:
        opened = recorder.guarded("checkpoint", table.enter, ctx, run_function, preserve, args)
        if opened is None:
            return first(ctx, run_function, preserve, *args)
        failed = True
        try:
            result = first(ctx, run_function, preserve, *args)
            failed = False
        finally:
            recorder.guarded("checkpoint", table.leave, opened, run_function, args, failed=failed)
        recorder.guarded("checkpoint", table.cut_off, opened, args, result)
        return result

    @transparent
    def watched_apply(*args: Any) -> Any:
        state = recorder.threads.state()
        outer, state.follows = state.follows, torch.is_grad_enabled()
        try:
            return apply(*args)
        finally:
            state.follows = outer

    @transparent
    def watched_backward(ctx: Any, *gradients: Any) -> Any:
        function = ctx.run_function

        @transparent
        def run_again(*args: Any) -> Any:
            opened = recorder.guarded("checkpoint", table.enter_again, ctx, function, args)
            if opened is None:
                return function(*args)
            failed = True
            try:
                result = function(*args)
                failed = False
            finally:
                recorder.guarded(
                    "checkpoint", table.leave_again, opened, function, args, failed=failed
                )
            return result

        return backward(_WatchedContext(ctx, run_again), *gradients)

    with patched(
        CheckpointFunction,
        forward=staticmethod(watched_forward),
        backward=staticmethod(watched_backward),
        apply=watched_apply,
    ):
        yield
