"""Exchange of findings between the ranks of a run while they end: each is printed once.

The ranks exchange their findings through files in the folder of the run, since a failed rank may
be the only one that still runs Python code. One of them prints for all: the first that sees that
all have reported, or that has waited long enough.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.support.rank_and_trace_paths import Rank

WAIT_S: Final = 3.0
"""Longest wait for the reports of other ranks, in seconds."""

_CLOCKS_S: Final = 1.0  # largest difference between the clocks of hosts
_POLL_S: Final = 0.02
_CLAIM: Final = "printing"
_PRINTED: Final = "printed.json"

Report: TypeAlias = dict[str, str]
"""Texts of findings, by a key that is equal on all ranks that have the finding."""


class RankReport:
    """The findings of the ranks of one run."""

    def __init__(self, folder: Path, rank: Rank) -> None:
        """Prepare, and delete what an earlier run of the same name left; the program begins."""
        self._rank = rank
        self._folder = folder / f".findings-{rank.run_name}-{rank.restart_count}"
        self._delete_older(time.time() - _CLOCKS_S)

    def _delete_older(self, began: float) -> None:
        """Delete the files that were written before a time, in seconds since 1970."""
        with suppress(OSError):
            for file in self._folder.iterdir():
                if file.stat().st_mtime < began:
                    file.unlink(missing_ok=True)

    def write(self, report: Report) -> None:
        """Let the other ranks read the findings of this one.

        Raises:
            OSError: the file cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._replace(f"{self._rank.rank}.json", report)

    def collect(self, report: Report) -> list[tuple[str, int]]:
        """Return the findings that this rank is to print, each with the number of its ranks.

        Args:
            report: the findings of this rank, which are written already.
        """
        if not report:  # the last rank clears up, and prints for ranks that still wait
            return self._merge() if self._is_complete() and self._claim() else []
        deadline = time.monotonic() + WAIT_S
        while not self._is_complete() and not self._is_claimed() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if self._claim():
            return self._merge()
        printed = self._printed()
        return [(text, 1) for key, text in report.items() if key not in printed]

    def _is_complete(self) -> bool:
        return sum(1 for _ in self._folder.glob("[0-9]*.json")) == self._rank.world_size

    def _is_claimed(self) -> bool:
        """Return whether another rank prints, or has printed and removed the folder."""
        return (self._folder / _CLAIM).exists() or not self._folder.exists()

    def _claim(self) -> bool:
        try:
            (self._folder / _CLAIM).touch(exist_ok=False)
        except OSError:
            return False
        return True

    def _merge(self) -> list[tuple[str, int]]:
        texts: Report = {}
        counts: dict[str, int] = {}
        is_complete = self._is_complete()
        for file in sorted(self._folder.glob("[0-9]*.json"), key=lambda file: int(file.stem)):
            for key, text in json.loads(file.read_text(encoding="utf-8")).items():
                texts.setdefault(key, text)
                counts[key] = counts.get(key, 0) + 1
        if is_complete:
            shutil.rmtree(self._folder, ignore_errors=True)
        else:  # a rank that reports later is to print only what is new
            with suppress(OSError):
                self._replace(_PRINTED, texts)
        return [(text, counts[key]) for key, text in texts.items()]

    def _printed(self) -> Report:
        """Return the report that another rank prints, which has claimed to do so just now."""
        file = self._folder / _PRINTED
        deadline = time.monotonic() + WAIT_S
        while self._folder.exists() and time.monotonic() < deadline:
            with suppress(OSError, ValueError):
                found: Report = json.loads(file.read_text(encoding="utf-8"))
                return found
            time.sleep(_POLL_S)
        return {} if self._folder.exists() else _Everything()

    def _replace(self, name: str, report: Report) -> None:
        partial = self._folder / f".{self._rank.rank}-{name}"
        partial.write_text(json.dumps(report), encoding="utf-8")
        partial.replace(self._folder / name)


class _Everything(dict[str, str]):
    """A report that contains every key: all ranks have reported, and one has printed."""

    def __contains__(self, key: object) -> bool:
        return True
