"""The connection of a recording's threads with C++, which numbers them too."""

from __future__ import annotations

import inspect
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch.autograd.graph

if TYPE_CHECKING:
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState


def attach_thread(native: Any, state: ThreadState) -> int:
    """Let C++ read the open calls, regions and nodes of the current thread; return its number.

    Before the recording is open there is only the thread that prepares it, number 0.
    """
    if not native.is_open():
        return 0
    return native.attach(state.calls, state.regions, state.running)  # type: ignore[no-any-return]


def open_native(native: Any, session: Session, outermost: int) -> None:
    """Open the recording in C++; this thread becomes number 0."""
    native.open(session.sequence.began_ns, session.with_stacks, outermost, _clone_code())
    for state in session.threads:
        state.number = native.attach(state.calls, state.regions, state.running)


@cache
def _clone_code() -> CodeType | None:
    """Return the function in which ``allow_mutation_on_saved_tensors`` clones a tensor."""
    mode = torch.autograd.graph._CloneArgBeforeMutateMode  # noqa: SLF001
    constants = inspect.unwrap(mode.__torch_dispatch__).__code__.co_consts
    inner = (each for each in constants if isinstance(each, CodeType))
    return next((code for code in inner if code.co_name == "maybe_clone"), None)
