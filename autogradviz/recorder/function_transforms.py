"""Transforms of ``torch.func``: what a recording has of the operators inside, and what it lacks."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from autogradviz.recorder.torch_internals.compilers import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import FUNCTION_TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.session import Session

_LIMITS: Final = {
    "_grad_increment_nesting": "torch.func computed gradients: the operators inside are recorded, "
    "but not which of the transform's nodes and saved tensors belong to them, so why() and "
    "certificates cover none of these gradients, and findings only those that are zeros",
    "enter_jvp_nesting": "torch.func computed derivatives in forward mode: the operators "
    "inside are recorded, but no tangents, so findings, why() and certificates cover none of them",
}
"""By the function that begins a transform. What ``vmap`` alone runs is recorded as without it."""


@contextmanager
def observe_transforms(session: Session) -> Iterator[None]:
    """Record which transforms begin while the context is open."""
    with ExitStack() as installed:
        for name in _LIMITS:
            ours = _wrapper(session, name)
            installed.enter_context(patched(FUNCTION_TRANSFORMS, **{name: ours}))
        yield


def _wrapper(session: Session, name: str) -> Callable[..., Any]:
    original, message = getattr(FUNCTION_TRANSFORMS, name), _LIMITS[name]

    @skip_frame
    def begin(*args: Any) -> Any:
        level = original(*args)  # first: the transform ends whatever is raised from here on
        session.guarded("torch.func", session.limit, "torch.func", message, with_stack=True)
        return level

    return begin
