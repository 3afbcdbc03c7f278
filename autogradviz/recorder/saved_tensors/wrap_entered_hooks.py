"""Pairs of saved-tensor hooks: every pair that a program enters is wrapped while it is entered.

The recorder pushes no pair of its own: that would disable PyTorch's version check. A pair that
exists anyway (a user's, checkpoint's, recomputation's, offload's, allow-mutation's) is wrapped when
it is pushed: it does the same as before, and its packs and unpacks are recorded.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from autogradviz.events import HooksEntered, HooksLeft, PackedBy
from autogradviz.recorder.callable_names import function_name
from autogradviz.recorder.saved_tensors.hook_wrappers import WRAPPERS
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive, skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched, patched_for_compilers_too
from autogradviz.recorder.torch_internals.private_api import (
    AUTOGRAD_C,
    SwapWithCloned,
    top_saved_tensors_hooks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.saved_tensors.hook_wrappers import HookTracer
    from autogradviz.recorder.session import Session

Plan: TypeAlias = tuple[PackedBy, "int | None", "int | None"]
"""The kind of a pair, and the region and recomputation in which it packs."""


class PairHandler(Protocol):
    """Records the entries and exits of one kind of pairs."""

    def plan(self, hooks: Any) -> Plan:
        """Return the purpose of a pair that is about to be entered."""

    def on_enter(self, hooks: Any, plan: Plan) -> None:
        """Record that a pair was entered."""

    def on_exit(self, hooks: Any, error: type[BaseException] | None) -> None:
        """Record that a pair is about to be left, by an exception or without one."""


class HookPairTable:
    """Assigns ids to the pairs of users, of offloading and of allow-mutation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._count = 0
        self._open: dict[int, list[int]] = {}  # entered pairs by the address of their object

    def plan(self, hooks: saved_tensors_hooks) -> Plan:
        """Return the purpose of a pair that is about to be entered."""
        region = self._session.threads.local.state.region
        if isinstance(hooks, SwapWithCloned):
            return "allow_mutation", *region
        if isinstance(hooks, save_on_cpu):
            return "offload", *region
        return "user", *region

    def on_enter(self, hooks: Any, plan: Plan) -> None:
        """Record that a pair was entered."""
        name = _LIBRARY_PAIRS.get(type(hooks)) or function_name(hooks.pack_hook)
        self._session.emit(
            HooksEntered, self._count, plan[0], name, stack_id=self._session.stack_id()
        )
        self._open.setdefault(id(hooks), []).append(self._count)
        self._count += 1

    def on_exit(self, hooks: Any, _error: type[BaseException] | None) -> None:
        """Record that a pair is left."""
        pairs = self._open.get(id(hooks))
        if pairs:
            self._session.emit(HooksLeft, pairs.pop())
            if not pairs:
                del self._open[id(hooks)]


_LIBRARY_PAIRS: Final[dict[Any, str]] = {
    save_on_cpu: "save_on_cpu",
    SwapWithCloned: "allow_mutation_on_saved_tensors",
}


def _innermost_pack_hook() -> Any:
    pair = top_saved_tensors_hooks(True)
    return None if pair is None else pair[0]


@contextmanager
def observe_hook_pairs(
    session: Session, tracer: HookTracer, pairs: PairHandler, handlers: dict[type, PairHandler]
) -> Iterator[None]:
    """Wrap every pair of saved-tensor hooks that is entered while the context is open.

    Args:
        session: of the recording.
        tracer: records packs and unpacks.
        pairs: records entries and exits of all other classes than those of ``handlers``.
        handlers: record entries and exits of the pairs of some classes.
    """
    enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

    @skip_dynamo_recursive
    def handler_of(hooks: Any) -> PairHandler:
        of_kind = (each for kind, each in handlers.items() if issubclass(type(hooks), kind))
        return next(of_kind, pairs)

    @skip_frame
    def wrapped_enter(hooks: Any) -> Any:
        handler = handler_of(hooks)
        plan = session.guarded("saved tensors", handler.plan, hooks)
        if plan is None:
            return enter(hooks)
        pack, unpack = hooks.pack_hook, hooks.unpack_hook
        wrappers = session.always_guarded(
            "saved tensors", tracer.wrap, pack, unpack, plan[0], plan[1:]
        )
        if wrappers is None:
            return enter(hooks)
        tracing, unpacking = wrappers

        # No ExitStack: Dynamo would compile its methods.
        try:
            hooks.pack_hook = tracing
            hooks.unpack_hook = unpacking
            try:
                result = enter(hooks)
            finally:
                hooks.pack_hook, hooks.unpack_hook = pack, unpack
            session.guarded("checkpoint", handler.on_enter, hooks, plan)
        except BaseException as error:
            # Ctrl-C may come after the push: the with block is neither entered nor left then.
            if _innermost_pack_hook() is tracing:
                leave(hooks, type(error), error, error.__traceback__)
            raise
        return result

    @skip_frame
    def wrapped_leave(hooks: Any, *error: Any) -> Any:
        try:
            handler = handler_of(hooks)
            session.guarded("checkpoint", handler.on_exit, hooks, (*error, None)[0])
        finally:
            leave(hooks, *error)

    with (
        patched(saved_tensors_hooks, __enter__=wrapped_enter, __exit__=wrapped_leave),
        patched_for_compilers_too(AUTOGRAD_C, _top_saved_tensors_default_hooks=_original_pair),
    ):
        yield


@skip_dynamo_recursive
def _original_pair(*args: Any) -> Any:
    """Return the innermost pair as it was entered.

    AOTAutograd asks for it: it inlines a pair of two ``GraphModule``s, and Dynamo guards it by
    identity. PyTorch itself calls the wrappers.
    """
    pair: Any = top_saved_tensors_hooks(*args)
    return pair and tuple([each.hook if type(each) in WRAPPERS else each for each in pair])
