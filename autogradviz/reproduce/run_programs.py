"""Runs programs in a child process, within a time limit."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

_SCRIPT: Final = Path(__file__).with_name("child_process.py")
_START_SECONDS: Final = 120
"""Time to import PyTorch."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a program."""

    type_name: str | None  # of the exception; None without one, "" if it did not end
    message: str = ""
    slugs: tuple[str, ...] = field(default=())  # of the findings, if it was recorded
    lineno: int = 0  # of the program, where it raised


class ProgramRunner:
    """A child process that has imported PyTorch and runs programs, as a context manager."""

    def __init__(self, seconds: float) -> None:
        """Set the time for all programs together.

        The time begins when PyTorch has been imported.
        """
        self._seconds = seconds
        self._ends = monotonic() + _START_SECONDS
        self.record = False
        """Whether the next programs are recorded."""
        self._known: dict[tuple[str, bool], Outcome] = {}
        self._lines: queue.Queue[str] = queue.Queue()
        self.torch_version = ""

    def __enter__(self) -> ProgramRunner:  # noqa: PYI034 - Self needs Python 3.11
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, str(_SCRIPT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            encoding="utf-8",
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        self._send(sys.path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # a request that the process did not read
                    stream.close()

    @property
    def seconds_left(self) -> float:
        """The time that is left for programs."""
        return self._ends - monotonic()

    def start_again(self, seconds: float) -> None:
        """Set the time for the next programs."""
        self._ends = monotonic() + seconds

    def find_functions(
        self, ops: Iterable[str], *, checkpoint: bool = False
    ) -> dict[str, tuple[str, list[str]]]:
        """Return the Python function of each operator, and the names of its arguments.

        The function is a "method" of tensors, in "torch" or in "F", ``torch.nn.functional``.
        """
        answer = self._ask({"names": sorted(ops), "checkpoint": checkpoint})
        self.torch_version = answer.get("torch", "")
        self.start_again(self._seconds)
        return {op: (where, names) for op, (where, names) in answer.get("known", {}).items()}

    def run(self, text: str) -> Outcome:
        """Run a program, or return the outcome of an earlier run of the same text."""
        key = text, self.record
        if key not in self._known:
            seconds = max(1, min(10, int(self.seconds_left)))
            request = {"text": text, "record": self.record, "seconds": seconds}
            answer = self._ask(request)
            if not answer:
                return Outcome("", "no time is left")
            self._known[key] = Outcome(
                answer["type"], answer["message"], tuple(answer["slugs"]), answer.get("line", 0)
            )
        return self._known[key]

    def _ask(self, request: Any) -> dict[str, Any]:
        self._send(request)
        try:
            line = self._lines.get(timeout=max(0.01, self.seconds_left))
        except queue.Empty:
            self._process.kill()
            return {}
        return json.loads(line) if line else {}

    def _send(self, request: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._lines.put("")

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:  # closed
            pass
        self._lines.put("")
