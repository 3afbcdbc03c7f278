"""Failures of the recorder itself: listed in the trace and in one warning, never raised."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Final

from autogradviz.errors import AutogradvizWarning

MAX_FAILURES: Final = 20  # events for each hook point; later failures are only counted


class Failures:
    """The failures of one recording by hook point."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, hook_point: str, message: str) -> bool:
        """Count a failure; return whether an event is to be emitted for it."""
        self._first.setdefault(hook_point, message)
        self._counts[hook_point] += 1
        return self._counts[hook_point] <= MAX_FAILURES

    @property
    def summary(self) -> str | None:
        """A one-line summary of the failures; None if nothing failed."""
        if not self._first:
            return None
        missed = "; ".join(f"{name}: {message}" for name, message in self._first.items())
        return f"autogradviz could not record everything ({missed}); your step was not touched"

    def warn(self, *, quiet: bool) -> None:
        """Warn once if anything failed; ``quiet`` suppresses the exception of an "error" filter."""
        message = self.summary
        if message is None:
            return
        try:
            warnings.warn(message, AutogradvizWarning, stacklevel=3)
        except AutogradvizWarning:
            if not quiet:
                raise
