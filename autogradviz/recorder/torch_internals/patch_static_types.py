"""Replace methods of types of C, which Python does not let anyone assign."""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autogradviz.recorder.torch_internals.patch_functions import hidden_from_compilers

if TYPE_CHECKING:
    from collections.abc import Iterator


class _PatchOfType:
    """Replaces entries of the dict of a type, and tells Python's caches of methods."""

    def __init__(self, kind: type, ours: dict[str, Any]) -> None:
        self._kind = kind
        self._ours = ours
        self._originals = {name: vars(kind)[name] for name in ours}

    def install(self) -> None:
        """Replace each method that is the original."""
        self._replace(self._originals, self._ours)

    def remove(self) -> None:
        """Restore each method that is ours."""
        self._replace(self._ours, self._originals)

    def _replace(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        # The proxy that ``vars`` returns refers to the dict and to nothing else.
        found = [each for each in gc.get_referents(vars(self._kind)) if type(each) is dict]
        if len(found) != 1:
            return  # another Python: what these methods do is not recorded
        entries = found[0]
        for name, value in after.items():
            if entries.get(name) is before[name]:
                entries[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(self._kind))


@contextmanager
def patched_type(kind: type, **ours: Any) -> Iterator[None]:
    """Replace methods of a type of C while the context is open and no compiler runs."""
    with hidden_from_compilers(_PatchOfType(kind, ours)):
        yield
