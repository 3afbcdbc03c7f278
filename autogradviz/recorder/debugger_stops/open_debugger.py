"""Open the user's debugger in a frame of the user.

``breakpoint()`` stops in the frame that calls it, which would be one of the recorder's. So the
debugger that it would open is opened here, in the frame that is given:

- pdb, or IPython's debugger in IPython and Jupyter, at once.
- pydevd, the debugger of VS Code and PyCharm, at the next line of the frame.
- any other one, which ``PYTHONBREAKPOINT`` names or which has replaced ``sys.breakpointhook``, from
  a copy of the frame: same file, line, globals and a copy of its variables.
"""

from __future__ import annotations

import bdb
import os
import pdb  # noqa: T100 - it is what breakpoint() opens
import sys
from typing import TYPE_CHECKING, Any, Final

from autogradviz.support.rank_and_trace_paths import current_rank

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import FrameType

    Paused = Callable[[], AbstractContextManager[None]]
    """Returns a context in which the thread is not recorded."""

_SKIPPED: Final = ["autogradviz", "autogradviz.*"]
"""Modules that ``step`` does not enter."""


def reason_without_debugger() -> str | None:
    """Return why no debugger can be opened; None if one can."""
    if os.environ.get("PYTHONBREAKPOINT") == "0" and _is_default_hook():
        return "PYTHONBREAKPOINT=0 disables breakpoint()"
    if _attached_pydevd() is not None or not _is_default_hook() or _named_hook():
        return None
    kernel = getattr(_ipython_shell(), "kernel", None)
    if kernel is not None:
        allowed = getattr(kernel, "_allow_stdin", False)
        return None if allowed else "the frontend of this notebook cannot answer"
    rank = current_rank()
    if rank is not None and rank.rank > 0:
        return f"rank {rank.rank} shares the terminal of rank 0"
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return "standard input is no terminal"
    return None


def open_debugger(frame: FrameType, paused: Paused) -> bool:
    """Open the debugger of ``breakpoint()`` in a frame.

    Args:
        frame: the frame to stop in.
        paused: what the user calls in the debugger runs in such a context.

    Returns:
        Whether the user still steps through the program.

    Raises:
        bdb.BdbQuit: the user quit the program.
    """
    pydevd = _attached_pydevd()
    if pydevd is not None:
        pydevd.settrace(
            suspend=True,
            trace_only_current_thread=True,
            patch_multiprocessing=False,
            stop_at_frame=frame,
        )
        return True
    if _is_default_hook() and not _named_hook():
        return _interact(frame, paused)
    with paused():
        _call_hook_in_copy(frame)
    return sys.gettrace() is not None


def _interact(frame: FrameType, paused: Paused) -> bool:
    """Open pdb at once; what ``Bdb.set_trace`` does would first stop in the recorder."""
    shell = _ipython_shell()
    kind: Any = pdb.Pdb if shell is None else shell.debugger_cls

    class Debugger(kind):  # type: ignore[misc]
        def interaction(self, *args: Any, **kwargs: Any) -> None:
            with paused():
                super().interaction(*args, **kwargs)

    # Ctrl-C remains the program's: a recording does not replace its signal handlers.
    debugger = Debugger(skip=_SKIPPED, nosigint=True)
    debugger.reset()
    outer: FrameType | None = frame
    while outer is not None:
        outer.f_trace = debugger.trace_dispatch
        debugger.botframe = outer
        outer = outer.f_back
    debugger.interaction(frame, None)
    if debugger.quitting:
        _stop_tracing(frame)
        raise bdb.BdbQuit
    steps = debugger.stopframe is not debugger.botframe or debugger.stoplineno != -1
    if steps or debugger.breaks:
        sys.settrace(debugger.trace_dispatch)
    else:
        _stop_tracing(frame)
    return steps


def _stop_tracing(frame: FrameType | None) -> None:
    sys.settrace(None)
    while frame is not None:
        frame.f_trace = None
        frame = frame.f_back


def _call_hook_in_copy(frame: FrameType) -> None:
    """Call ``breakpoint()`` in a frame with the file, line and variables of another one."""
    code = compile("breakpoint()", frame.f_code.co_filename, "eval")
    code = code.replace(co_firstlineno=frame.f_lineno, co_name=frame.f_code.co_name)
    eval(code, frame.f_globals, dict(frame.f_locals))  # noqa: S307 - the text above


def _is_default_hook() -> bool:
    """Return whether ``breakpoint()`` opens pdb.

    Jupyter's kernels replace it by the hook of debugpy, which does nothing unless a client is
    attached.
    """
    module = getattr(sys.breakpointhook, "__module__", None) or ""
    own = sys.breakpointhook is sys.__breakpointhook__
    return own or module.partition(".")[0] in {"debugpy", "pydevd"}


def _named_hook() -> bool:
    return os.environ.get("PYTHONBREAKPOINT", "") not in {"", "0", "pdb.set_trace"}


def _ipython_shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _attached_pydevd() -> Any:
    """Return the module of pydevd, if a client is attached to it."""
    pydevd = sys.modules.get("pydevd")
    is_attached = getattr(pydevd, "_is_attached", None)
    return pydevd if is_attached is not None and is_attached() else None
