"""The class of hooks that the recorder itself registers."""

from __future__ import annotations


class OwnHook:
    """A hook of the recorder, which is not recorded as one of the user's."""

    __slots__ = ()
