"""Find out if a compiler traces on this thread, and listen for when one begins."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.patches import forget_compilers, patched_for_compilers_too
from autogradviz.recorder.torch_internals.private_api import (
    GUARDS,
    DispatchKey,
    DispatchModeKey,
    get_dispatch_mode,
    is_key_included,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# The state of a thread that traces for a compiler: what it runs is no part of the program's run.
#
# Compiled autograd also sets a context, without a frame, while it runs what it has compiled.
#
# NOTE [ While a compiler runs ] A compiler runs the program to trace it, also in the middle of a
# recording. What it runs is no part of the program's run, and Dynamo recognizes PyTorch's functions
# by identity. So two things happen while a compiler runs (here and in ``patches.py``):
#
# - The recording of its thread is suspended: operators, modules, regions, hooks, backward. Dynamo,
#   AOTAutograd and Inductor set one of two contexts of ``torch._guards`` for as long as they
# compile,
#   on the thread that does it, also when a backward is compiled at its first run. The thread-local
#   object is replaced by one that reports changes, because C++ needs a flag and PyTorch's callbacks
#   are called once for all threads. Tracing without these contexts (``make_fx``, ``aot_function``)
#   runs under a dispatch mode for tracing, which the engine's threads inherit. A ``FakeTensorMode``
#   alone is no tracing: programs use it to estimate memory. ``Session.guarded`` asks; what must
#   happen in any case, like releases, uses ``Session.always_guarded``.
# - All functions of PyTorch that the recorder has replaced are restored, for all threads. Otherwise
#   Dynamo would trace ours, guard them, and keep what it read in tables that outlive the recording.
# A
#   table that Dynamo filled when it was imported during a recording is corrected.
#
# One function stays replaced: the one that returns the innermost pair of saved-tensor hooks.
# AOTAutograd inlines a pair of two ``GraphModule``s, and Dynamo guards its identity, so it must
# return the pair that was entered and not the wrappers that PyTorch calls. In eager code such a
# pair is recorded like any other.
#
# When compiled code calls Python functions, Dynamo evaluates their frames. All functions of the
# recorder are marked to be skipped, with what they call; wrappers are marked alone, because they
# call the user's code (``keep_dynamo_out.py``).
#
# AOTAutograd without Dynamo (``aot_function``) sets no context before its dispatch modes are
# active: the operators that create its fake tensors are recorded.


_CONTEXTS: Final = GUARDS._TLS
_PROXY: Final = DispatchModeKey.PROXY
_FUNCTIONAL: Final = DispatchModeKey.FUNCTIONAL
_PRE_DISPATCH: Final = DispatchKey.PreDispatch


def is_compiling() -> bool:
    """Return whether a compiler runs on this thread."""
    if getattr(_CONTEXTS, "tracing_context", None) is not None:
        return True
    context = getattr(_CONTEXTS, "compile_context", None)
    if context is None:
        return False
    compile_id = context.compile_id
    return compile_id is None or compile_id.frame_id is not None


def is_under_tracing_mode() -> bool:
    """Return whether a dispatch mode for tracing is active on this thread."""
    return (
        get_dispatch_mode(_PROXY) is not None
        or get_dispatch_mode(_FUNCTIONAL) is not None
        or is_key_included(_PRE_DISPATCH)
    )


class _ObservedContexts:
    """The contexts of all threads; a function is called after each change."""

    __slots__ = ("_changed",)

    def __init__(self, changed: Callable[[], None]) -> None:
        object.__setattr__(self, "_changed", changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(_CONTEXTS, name)

    @skip_dynamo_recursive
    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_CONTEXTS, name, value)
        self._changed()

    @skip_dynamo_recursive
    def __delattr__(self, name: str) -> None:
        delattr(_CONTEXTS, name)
        self._changed()


@contextmanager
def compiling_listener(changed: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever a compiler may have begun or ended on the calling thread.

    PyTorch has no interface for this: its callbacks are called once for all threads, and only for
    the outermost of nested compilations.
    """
    with patched_for_compilers_too(GUARDS, _TLS=_ObservedContexts(changed)):
        try:
            yield
        finally:
            forget_compilers()
