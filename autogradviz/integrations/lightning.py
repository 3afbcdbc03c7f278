"""A callback for Lightning: record the training, and show the findings."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogradviz.errors import MissingExtraError
from autogradviz.recording.break_on_argument import read_conditions
from autogradviz.recording.record_between_callbacks import OpenEndedRecording, describe_saved
from autogradviz.recording_options import RecordingOptions
from autogradviz.render.terminal_text import as_text, render_findings
from autogradviz.support.locks_gc_and_stderr import print_line

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from autogradviz.recording.break_on_argument import BreakOn
    from autogradviz.trace import Trace


def _callback_class() -> Any:
    """Return ``Callback`` of the package that the program uses; both are one code base."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    names.sort(key=lambda name: name not in sys.modules)
    for name in names:
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError:
            continue
    message = "AutogradvizCallback needs Lightning: pip install lightning"
    raise MissingExtraError(message)


class AutogradvizCallback(_callback_class()):  # type: ignore[misc]
    """Records ``trainer.fit`` and writes a trace if it fails or something is found.

    An exception of the training has the first finding as a note.

    Attributes:
        trace: of the last training; None before it ended.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = "autogradviz-traces",
        *,
        keep_steps: int = 3,
        fingerprints: bool = False,
        break_on: BreakOn | Sequence[BreakOn] | None = None,
    ) -> None:
        """Prepare a recording.

        Args:
            folder: of the traces; each rank writes its own.
            keep_steps: keep only the last N training steps.
            fingerprints: also record hashes of contents, as ``record`` does.
            break_on: open the debugger when an event matches, as ``record`` does.

        Raises:
            ValueError: if ``keep_steps`` is not positive, or ``break_on`` is no condition.
        """
        super().__init__()
        self._folder = Path(folder)
        options = RecordingOptions(
            keep_steps=keep_steps, fingerprints=fingerprints, break_on=read_conditions(break_on)
        )
        self._recording = OpenEndedRecording(options)
        self.trace: Trace | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Begin to record."""
        self._recording.begin(model=pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Finish; print what was found, and write a trace if anything was."""
        self.trace = self._recording.finish()
        found = [] if self.trace is None else self.trace.diagnose()
        if self.trace is not None and found:
            if trainer.is_global_zero:
                print_line(f"found\n{as_text(render_findings(found))}")
            print_line(describe_saved(self.trace, self._folder, "lightning"))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Finish, add the finding to the exception, and write the last steps."""
        if not self._recording.is_open:
            return
        self.trace = self._recording.finish(exception)
        if self.trace is not None and not isinstance(exception, KeyboardInterrupt):
            print_line(describe_saved(self.trace, self._folder, "lightning"))
