"""Selective checkpoint: the policy's decision for each op, and the ops answered from its cache.

``create_selective_checkpoint_contexts`` makes two dispatch modes with one storage. The first calls
the policy for every op of the forward; the second answers the ops of the recomputation that were
cached. An op that is answered does not run: the recorder's mode, which stands below, does not see
it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from torch.utils.checkpoint import CheckpointPolicy

from autogradviz.events import OpServed, PolicyDecided, PolicyRead
from autogradviz.recorder.callable_names import function_name
from autogradviz.recorder.checkpoint.ops_named_by_policy import named_ops
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import (
    CachedTorchDispatchMode,
    CachingTorchDispatchMode,
    is_saved_for_its_effect,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.session import Session, SessionRef


MAX_STORAGES: Final = 4_096
"""Regions whose cached ops a long recording remembers."""

_SAVED: Final = frozenset({CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE})
_OF_A_LIST: Final = "create_selective_checkpoint_contexts."


class TracingPolicy:
    """A policy that returns the decisions of the original and records them."""

    def __init__(
        self, session: SessionRef[Session], policy: Any, cached: dict[Any, int | None], mode: Any
    ) -> None:
        self._mode = weakref.ref(mode)  # which holds the policy
        self._session = session
        self._policy = policy
        self._cached = cached  # by op and the number of its earlier calls
        self._calls: Counter[Any] = Counter()
        self._is_read = False

    @skip_frame
    def __call__(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the original."""
        decision = self._policy(ctx, op, *args, **kwargs)
        session = self._session.target
        if session is not None:
            session.guarded("selective checkpoint", self._emit, session, op, decision)
        return decision

    def _emit(self, session: Session, op: Any, decision: Any) -> None:
        if isinstance(decision, bool):  # as PyTorch interprets it
            save, recompute = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
            decision = save if decision else recompute
        state = session.threads.local.state
        if not self._is_read:
            self._is_read = True
            named, decomposed = named_ops(self._policy)
            policy = function_name(self._policy)
            policy = "list of operators" if policy.startswith(_OF_A_LIST) else policy
            session.emit(
                PolicyRead, state.region[0], policy, named, decomposed,
                getattr(self._mode(), "respect_saved_tensors_hooks", None) is True,
                thread=state.number,
            )  # fmt: skip
        name = str(op)
        last = session.engine.last_op()
        op_seq = last[0] if last is not None and last[1] == name else None
        cached = decision in _SAVED or (
            decision is not CheckpointPolicy.MUST_RECOMPUTE and is_saved_for_its_effect(op)
        )
        if cached:
            self._cached[op, self._calls[op]] = op_seq
        self._calls[op] += 1
        session.emit(
            PolicyDecided, name, decision.name.lower(), cached, state.region[0], op_seq,
            thread=state.number,
        )  # fmt: skip


def _emit_served(
    session: Session, cached: dict[Any, int | None], op: Any, nth: int, before: int
) -> None:
    """Record that an op was answered from the cache, unless it ran.

    Args:
        session: of the recording.
        cached: events of the cached ops, by op and number.
        op: the operator.
        nth: how often it was called before in this recomputation.
        before: the number of events before the call.
    """
    last = session.engine.last_op()
    if (op, nth) not in cached or (last is not None and last[0] >= before):
        return
    state = session.threads.local.state
    region_id, recompute_id = state.region
    session.emit(
        OpServed, str(op), region_id, recompute_id, cached[op, nth],
        thread=state.number, stack_id=session.stack_id(),
    )  # fmt: skip


def _count(session: Session) -> int:
    return session.event_count


@contextmanager
def observe_policies(session: Session) -> Iterator[None]:
    """Record selective checkpointing while the context is open."""
    init = CachingTorchDispatchMode.__init__
    dispatch = CachedTorchDispatchMode.__torch_dispatch__
    by_storage: dict[int, dict[Any, int | None]] = {}
    ref = session.ref(session)

    @skip_frame
    def wrapped_init(mode: Any, policy_fn: Any, storage: Any, *rest: Any, **named: Any) -> None:
        if not session.observes():
            init(mode, policy_fn, storage, *rest, **named)
            return
        cached = by_storage[id(storage)] = {}
        if len(by_storage) > MAX_STORAGES:
            del by_storage[next(iter(by_storage))]
        init(mode, TracingPolicy(ref, policy_fn, cached, mode), storage, *rest, **named)

    @skip_frame
    def wrapped_dispatch(
        mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        counter = getattr(mode, "func_counter", {})
        nth, before = counter.get(func, 0), session.guarded("selective checkpoint", _count, session)
        result = dispatch(mode, func, types, args, kwargs)
        cached = by_storage.get(id(mode.storage))
        if cached is not None and session.with_ops and before is not None:
            session.guarded(
                "selective checkpoint", _emit_served, session, cached, func, nth, before
            )
        return result

    with (
        patched(CachingTorchDispatchMode, __init__=wrapped_init),
        patched(CachedTorchDispatchMode, __torch_dispatch__=wrapped_dispatch),
    ):
        yield
