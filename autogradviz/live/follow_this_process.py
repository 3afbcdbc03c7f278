"""Show a recording of this process in a widget while it is recorded."""

from __future__ import annotations

import threading
from time import monotonic, sleep, thread_time
from typing import TYPE_CHECKING, Final

from autogradviz.errors import AutogradvizError
from autogradviz.event_log.compressed_rows import CompressedRows
from autogradviz.event_log.log import rows_of_segment
from autogradviz.events import EVENT_TYPES, RecorderLimited, RecordingEnded
from autogradviz.live.analyze_steps_while_recorded import RecordedSteps
from autogradviz.live.follow_growing_file import FollowedFile
from autogradviz.render.live_page_and_widget import LiveWidget

if TYPE_CHECKING:
    from autogradviz.event_log import Log
    from autogradviz.event_log.log import LogSource
    from autogradviz.event_log.training_steps import RowsByKind
    from autogradviz.scene import Scene


SHARE: Final = 0.05  # of the time, for the thread that analyzes, while the recording is open
COPY_SHARE: Final = 0.01  # of the time, for copying events when a step ends
PAUSE_S: Final = 1.0
"""Seconds between two updates of the widget, at least."""

_OPEN: Final = "While the recording is open, at most 5 % of the time is used to analyze steps."


class LiveRecording:
    """Reads an open recording: from its file if it has one, else from copies of its events."""

    def __init__(self, source: LogSource, title: str) -> None:
        self._source = source
        self._title = title
        self._steps = RecordedSteps()
        self._file = None if source.path is None else FollowedFile(source.path)
        self._newest: Log | None = None  # the last copy, until the thread takes it
        self._copy_due = 0.0
        self._seen_seq = -1  # the newest event that was read
        self._seen_segments: list[object] = []
        self._shown = -1
        self.widget = LiveWidget(self._scene_of)
        if self._file is None and source.add_step_listener is not None:
            source.add_step_listener(self._step_ended)

    def start(self) -> None:
        """Read and analyze in a thread until the recording has ended."""
        threading.Thread(target=self._run, name="autogradviz-live", daemon=True).start()

    def _scene_of(self, number: int) -> Scene | None:
        return self._steps.scene_of(number, self._title or "recording")

    def _step_ended(self, _end_seq: int) -> None:
        """Copy the events; called by the thread that trains."""
        began = monotonic()
        copy = self._source.copy
        if began >= self._copy_due and copy is not None:
            self._newest = copy()
            took = monotonic() - began
            self._copy_due = began + max(PAUSE_S, took / COPY_SHARE)

    def _run(self) -> None:
        try:
            while not self._steps.ended:
                began = thread_time()
                self._read()
                self._steps.analyze_next()
                self._show()
                sleep(max(PAUSE_S, (thread_time() - began) / SHARE))
            while self._steps.analyze_next():
                self._show()
                sleep(0.05)  # other threads of the notebook go first
        except (AutogradvizError, OSError) as error:
            self._show(str(error))
        except Exception as error:  # noqa: BLE001 - shown in the widget
            self._show(f"{type(error).__name__}: {error}")
        else:
            self._show()

    def _read(self) -> None:
        is_ready = self._source.is_ready
        if self._file is not None:
            for batch in self._file.read():
                self._steps.add(batch)
            if not is_ready or self._steps.ended:
                return
            self._file = None  # writing it failed
            self._steps = RecordedSteps()
        log, self._newest = self._newest, None
        if is_ready:
            self._add(self._source.read(), is_complete=True)
        elif log is not None:
            self._add(log, is_complete=False)

    def _add(self, log: Log, *, is_complete: bool) -> None:
        """Add the events that were not read yet."""
        rows: RowsByKind = {}
        for segment in log.segments:
            if not any(segment is seen for seen in self._seen_segments):
                self._seen_segments.append(segment)
                for kind, found in rows_of_segment(segment, EVENT_TYPES):
                    rows.setdefault(kind, []).extend(found)
        for kind in EVENT_TYPES:
            rows.setdefault(kind, []).extend(log.recent(kind).rows())
        if not is_complete:  # a copy has an end of its own
            del rows[RecordingEnded], rows[RecorderLimited]
        new = {
            kind: sorted(row for row in found if row[0] > self._seen_seq)
            for kind, found in rows.items()
        }
        new = {kind: found for kind, found in new.items() if found}
        if new:
            self._seen_seq = max(found[-1][0] for found in new.values())
            columns = {
                kind: list(map(list, zip(*found, strict=True))) for kind, found in new.items()
            }
            self._steps.add(CompressedRows(columns))
        if is_complete:
            self._steps.ended = True

    def _show(self, error: str = "") -> None:
        if error or self._steps.version != self._shown or self._steps.ended:
            self._shown = self._steps.version
            self.widget._changes = {  # noqa: SLF001
                "name": self._title,
                "generation": self._steps.generation,
                "exists": True,
                "unread": 0,
                "error": error,
                "note": "" if self._steps.ended else _OPEN,
                **self._steps.changes_after(0),
            }


def show_live(source: LogSource, title: str) -> LiveWidget:
    """Return a widget that follows a recording of this process, open or not."""
    live = LiveRecording(source, title)
    live.start()
    return live.widget
