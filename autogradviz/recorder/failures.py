"""What the recorder itself got wrong: told in the trace and in one warning, never raised."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Final

from autogradviz.errors import AutogradvizWarning

MAX_FAILURES: Final = 20  # events a seam; later failures are only counted


class Failures:
    """The failures of one recording, by seam."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, seam: str, message: str) -> bool:
        """Note a failure; return whether it deserves an event of its own."""
        self._first.setdefault(seam, message)
        self._counts[seam] += 1
        return self._counts[seam] <= MAX_FAILURES

    @property
    def summary(self) -> str | None:
        """What is missing from the recording, in one line; None where nothing failed."""
        if not self._first:
            return None
        missed = "; ".join(f"{seam}: {message}" for seam, message in self._first.items())
        return f"autogradviz could not record everything ({missed}); your step was not touched"

    def warn(self, *, quiet: bool) -> None:
        """Say once what was missed; ``quiet`` keeps a strict filter from raising."""
        message = self.summary
        if message is None:
            return
        try:
            warnings.warn(message, AutogradvizWarning, stacklevel=3)
        except AutogradvizWarning:
            if not quiet:
                raise
