"""The saved-tensor-hooks seam: every pair that somebody else pushes, wrapped where it stands.

We push no pair of our own: that would switch PyTorch's version check off. A pair that exists
anyway (a user's, checkpoint's, recomputation's, offload's, allow-mutation's) is wrapped while
it is pushed, so that it does exactly what it did and we hear of it. Checkpoint's two pairs also
tell when a region begins and ends, and how its recomputation ended.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.autograd.graph import _swap_with_cloned, save_on_cpu, saved_tensors_hooks

from autogradviz.events import (
    HooksEntered,
    HooksLeft,
    PackedBy,
    RecomputeStarted,
    RecomputeStopped,
    RegionEntered,
    RegionExited,
)
from autogradviz.recorder.checkpoint.frame_info import (
    closure_vars,
    determinism_check,
    function_name,
)
from autogradviz.recorder.checkpoint.state_diff import plain_arguments
from autogradviz.recorder.saved_tensors.hook_wrappers import TracingPackHook, TracingUnpackHook
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder

_forward_hook = torch_checkpoint._checkpoint_hook  # noqa: SLF001
_recompute_hook = torch_checkpoint._recomputation_hook  # noqa: SLF001
_EarlyStop = torch_checkpoint._StopRecomputationError  # noqa: SLF001


class RegionTable:
    """Numbers checkpoint regions and their recomputations."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._regions = 0
        self._recomputes = 0
        self._region_of: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._groups: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._pairs = 0
        self._open: dict[int, list[int]] = {}  # entered pairs by their object's address

    def next_region(self) -> int:
        """Return a new region's number."""
        self._regions += 1
        return self._regions - 1

    def next_recompute(self) -> int:
        """Return a new recomputation's number."""
        self._recomputes += 1
        return self._recomputes - 1

    def exec_group(self) -> int | None:
        """Return the number of the ``GraphExecGroup`` that backward runs in."""
        group = torch_checkpoint.GraphExecGroup._get_current_group()  # noqa: SLF001
        return None if group is None else self._groups.setdefault(group, len(self._groups))

    def plan(self, hooks: saved_tensors_hooks) -> tuple[PackedBy, int | None, int | None]:
        """Return who packs with these hooks, and the region and recomputation that begin."""
        frame = getattr(hooks, _FRAME, None)
        if isinstance(hooks, _forward_hook):
            region_id = self.next_region()
            if frame is not None:
                self._region_of[frame] = region_id
            return "checkpoint", region_id, None
        if isinstance(hooks, _recompute_hook):
            recompute_id = self.next_recompute()
            target = frame() if frame is not None else None
            region = None if target is None else self._region_of.get(target)
            return "recompute", region, recompute_id
        if isinstance(hooks, _swap_with_cloned):
            return "allow_mutation", *self._recorder.threads.local.state.region
        if isinstance(hooks, save_on_cpu):
            return "offload", *self._recorder.threads.local.state.region
        return "user", *self._recorder.threads.local.state.region

    def entered(
        self, hooks: Any, packed_by: PackedBy, region: int | None, again: int | None
    ) -> None:
        """Record that a region's forward or recomputation begins."""
        recorder = self._recorder
        state = recorder.threads.local.state
        stack_id = recorder.stacks.capture(3) if recorder.with_stacks else None
        if packed_by == "checkpoint":
            frame = getattr(hooks, _FRAME, None)
            function = closure_vars(frame).get("fn")
            recorder.emit(
                RegionEntered, region, state.region[0], state.calls[-1] if state.calls else None,
                False, bool(getattr(frame, "early_stop", True)),
                bool(closure_vars(frame).get("preserve_rng_state", True)),
                getattr(frame, "unpack_error_cb", None) is not None, determinism_check(frame),
                function_name(function), self.module_id(function),
                stack_id=stack_id,
            )  # fmt: skip
            state.regions.append((region, state.region[1]))
            recorder.guarded("state", self._describe, recorder.state.on_region_enter, region, frame)
            recorder.guarded(
                "checkpoint", recorder.arguments.keep, frame, (region, state.region[1]), stack_id
            )
        elif packed_by == "recompute":
            running = state.running[-1] if state.running else (None, None)
            recorder.emit(
                RecomputeStarted, again, region, running[0], running[1], self.exec_group(),
                stack_id=stack_id,
            )  # fmt: skip
            state.regions.append((region, again))
            target = getattr(hooks, _FRAME, lambda: None)()
            if region is not None and target is not None:
                recorder.guarded(
                    "state", recorder.state.on_recompute_enter,
                    region, again, closure_vars(target), plain_arguments(target),
                )  # fmt: skip
        else:
            own = _OWN_PAIRS.get(type(hooks))
            recorder.emit(
                HooksEntered, self._pairs, packed_by, own or function_name(hooks.pack_hook),
                stack_id=stack_id,
            )  # fmt: skip
            self._open.setdefault(id(hooks), []).append(self._pairs)
            self._pairs += 1

    def _describe(self, tell: Any, region_id: int | None, frame: Any) -> None:
        if region_id is not None and frame is not None:
            tell(region_id, closure_vars(frame), plain_arguments(frame))

    def module_id(self, function: Any) -> int | None:
        """Return the number of the module that a function is, or belongs to."""
        owner = function.__self__ if type(function) is MethodType else function
        return self._recorder.modules.find(owner) if isinstance(owner, torch.nn.Module) else None

    def left(self, hooks: Any, error: type[BaseException] | None) -> None:
        """Record that a region's forward or recomputation ends."""
        recorder = self._recorder
        state = recorder.threads.local.state
        pairs = self._open.get(id(hooks))
        if pairs:
            recorder.emit(HooksLeft, pairs.pop())
            if not pairs:
                del self._open[id(hooks)]
        if not state.regions or not isinstance(hooks, (_forward_hook, _recompute_hook)):
            return
        region_id, recompute_id = state.regions.pop()
        if isinstance(hooks, _forward_hook):
            recorder.emit(RegionExited, region_id, error is not None)
            frame = getattr(hooks, _FRAME, None)
            recorder.guarded(
                "state", self._describe, recorder.state.on_region_exit, region_id, frame
            )
        else:
            early = error is not None and issubclass(error, _EarlyStop)
            outcome = "completed" if error is None else "early_stop" if early else "error"
            recorder.emit(RecomputeStopped, recompute_id, outcome)
            target = getattr(hooks, _FRAME, lambda: None)()
            recorder.guarded(
                "state", self._describe, recorder.state.on_recompute_exit, recompute_id, target
            )


_FRAME = "_autogradviz_frame"
_OWN_PAIRS = {
    save_on_cpu: "save_on_cpu",
    _swap_with_cloned: "allow_mutation_on_saved_tensors",
}


@contextmanager
def observe_packs(recorder: Recorder) -> Iterator[None]:
    """Wrap every pair of saved-tensor hooks that is entered while the context is open."""
    enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

    @transparent
    def watched_enter(hooks: Any) -> Any:
        plan = recorder.guarded("saved tensors", recorder.regions.plan, hooks)
        if plan is None:
            return enter(hooks)
        pack, unpack = hooks.pack_hook, hooks.unpack_hook
        hooks.pack_hook = TracingPackHook(recorder.gate, pack, plan[0], plan[1:])
        hooks.unpack_hook = TracingUnpackHook(recorder.gate, unpack, plan[0])
        try:
            result = enter(hooks)
        finally:
            hooks.pack_hook, hooks.unpack_hook = pack, unpack
        with ExitStack() as interrupted:  # Ctrl-C: who has not entered will not leave
            interrupted.push(partial(leave, hooks))
            recorder.guarded("checkpoint", recorder.regions.entered, hooks, *plan)
            interrupted.pop_all()
        return result

    @transparent
    def watched_leave(hooks: Any, *error: Any) -> Any:
        with ExitStack() as leaving:
            leaving.callback(leave, hooks, *error)
            recorder.guarded("checkpoint", recorder.regions.left, hooks, (*error, None)[0])

    def remembering(init: Any) -> Any:
        @transparent
        def watched_init(hooks: Any, frame: Any, *rest: Any) -> None:
            init(hooks, frame, *rest)
            setattr(hooks, _FRAME, frame)

        return watched_init

    with (
        patched(saved_tensors_hooks, __enter__=watched_enter, __exit__=watched_leave),
        patched(_forward_hook, __init__=remembering(_forward_hook.__init__)),
        patched(_recompute_hook, __init__=remembering(_recompute_hook.__init__)),
    ):
        yield
