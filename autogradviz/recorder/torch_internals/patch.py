"""Putting functions in the places of PyTorch's, and PyTorch's back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_INHERITED: Final = object()


@contextmanager
def patched(owner: Any, **ours: Any) -> Iterator[None]:
    """Put functions in the places of a class's or a module's while the context is open.

    What somebody else put there meanwhile stays: a library that is imported while a recording is
    open may put a function of its own around ours, which then only hands on.
    """
    originals = {name: vars(owner).get(name, _INHERITED) for name in ours}
    try:
        for name, function in ours.items():
            setattr(owner, name, function)
        yield
    finally:
        for name, original in originals.items():
            if vars(owner).get(name) is not ours[name]:
                continue
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
