"""The selective checkpoint seam: what the policy decided for each op, and what its cache gave.

``create_selective_checkpoint_contexts`` makes two dispatch modes around one storage. The first
asks the policy for every op of the forward; the second answers the ops of the recomputation that
were kept. An op that is answered so is not run: our own mode, which stands below, does not see it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from torch.utils.checkpoint import (
    CheckpointPolicy,
    _CachedTorchDispatchMode,
    _CachingTorchDispatchMode,
)

from autogradviz.events import OpCalled, OpServed, PolicyDecided, field_names
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder, RecorderRef

MAX_STORAGES: Final = 4_096
"""Regions whose kept ops are remembered in a long recording."""

_SAVED: Final = frozenset({CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE})
_THREAD: Final = field_names(OpCalled).index("thread")
_OP: Final = field_names(OpCalled).index("op")


class WatchedPolicy:
    """A policy that decides what the original decides, and tells of it."""

    def __init__(self, gate: RecorderRef, policy: Any, kept: dict[Any, int | None]) -> None:
        self._gate = gate
        self._policy = policy
        self._kept = kept  # by op and how often it was asked for before
        self._asked: Counter[Any] = Counter()

    @transparent
    def __call__(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Ask the original."""
        decision = self._policy(ctx, op, *args, **kwargs)
        recorder = self._gate.recorder
        if recorder is not None:
            recorder.guarded("selective checkpoint", self._emit, recorder, op, decision)
        return decision

    def _emit(self, recorder: Recorder, op: Any, decision: Any) -> None:
        if isinstance(decision, bool):  # as PyTorch reads it
            save, leave = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
            decision = save if decision else leave
        state = recorder.threads.state()
        op_seq = _last_op(recorder, state.number, str(op))
        cached = decision in _SAVED
        if cached:
            self._kept[op, self._asked[op]] = op_seq
        self._asked[op] += 1
        recorder.emit(
            PolicyDecided, str(op), decision.name.lower(), cached, state.region[0], op_seq,
            thread=state.number,
        )  # fmt: skip


def _last_op(recorder: Recorder, thread: int, op: str) -> int | None:
    """Return the event of the op that this thread ran last, if it is the one named."""
    for row in reversed(recorder.log.recent(OpCalled).newest(64)):
        if row[_THREAD] == thread:
            return row[0] if row[_OP] == op else None
    return None


def _serve(recorder: Recorder, kept: dict[Any, int | None], op: Any, nth: int, before: int) -> None:
    """Record that an op was answered from the cache, unless it was seen running."""
    state = recorder.threads.state()
    newest = recorder.log.recent(OpCalled).newest(recorder.event_count - before)
    fresh = takewhile(lambda row: row[0] >= before, reversed(newest))
    if (op, nth) not in kept or any(row[_THREAD] == state.number for row in fresh):
        return
    region_id, recompute_id = state.region
    recorder.emit(
        OpServed, str(op), region_id, recompute_id, kept[op, nth],
        thread=state.number,
        stack_id=recorder.stacks.capture(3) if recorder.with_stacks else None,
    )  # fmt: skip


@contextmanager
def observe_policies(recorder: Recorder) -> Iterator[None]:
    """Record selective checkpointing while the context is open."""
    first_init = _CachingTorchDispatchMode.__init__
    answer = _CachedTorchDispatchMode.__torch_dispatch__
    kept: dict[int, dict[Any, int | None]] = {}  # by storage; a new one starts anew

    @transparent
    def init(mode: Any, policy_fn: Any, storage: Any, *rest: Any, **named: Any) -> None:
        kept[id(storage)] = {}
        if len(kept) > MAX_STORAGES:
            del kept[next(iter(kept))]
        watched = WatchedPolicy(recorder.gate, policy_fn, kept[id(storage)])
        first_init(mode, watched, storage, *rest, **named)

    @transparent
    def dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counter = getattr(mode, "func_counter", {})
        nth, before = counter.get(func, 0), recorder.event_count
        result = answer(mode, func, types, args, kwargs)
        known = kept.get(id(mode.storage))
        if known is not None and recorder.with_ops:
            recorder.guarded("selective checkpoint", _serve, recorder, known, func, nth, before)
        return result

    with (
        patched(_CachingTorchDispatchMode, __init__=init),
        patched(_CachedTorchDispatchMode, __torch_dispatch__=dispatch),
    ):
        yield
