"""The trace: one recording and everything that can be asked of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from autogradviz import event_log as log_files
from autogradviz.analysis import Analysis
from autogradviz.deprecation import warn_deprecated
from autogradviz.diagnose import diagnose
from autogradviz.errors import RecordingStateError
from autogradviz.events import VersionBumped
from autogradviz.graph_view import GraphView
from autogradviz.scene import build_scene

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pandas as pd
    import plotly.graph_objects as go

    from autogradviz.analysis import Region, SavedTensor, TensorHistory
    from autogradviz.diagnose import Finding
    from autogradviz.event_log import Log
    from autogradviz.render.widget import TraceWidget
    from autogradviz.scene import Scene


class Trace:
    """One recording: read it, draw it, save it."""

    def __init__(self, log: Log | None = None, *, title: str | None = None) -> None:
        self._log = log
        self._path: Path | None = None
        self._title = title
        self._held: Callable[[], Log] | None = None
        self._unreadable = "the trace is being recorded; leave the with block before reading it"

    def follow(self, held: Callable[[], Log]) -> None:
        """Take ``snapshot`` from a recording that has begun."""
        self._held = held

    def fill(self, log: Log) -> None:
        """Give the trace its events; the recording has ended."""
        self._log, self._held = log, None

    def fill_from(self, path: Path) -> None:
        """Take the events from a file, which holds more than memory did."""
        self._log, self._path = None, path
        for name in ("analysis", "_findings", "scene"):
            self.__dict__.pop(name, None)

    def detach_after_fork(self) -> None:
        """Refuse to be read: this process was forked from the one that records."""
        self._held = None
        self._unreadable = "this process was forked while recording; the trace is its parent's"

    @property
    def log(self) -> Log:
        """All events.

        Raises:
            RecordingStateError: while the recording is open, and in a forked child.
        """
        if self._log is None and self._path is not None:
            self._log = log_files.load(self._path)
        if self._log is None:
            raise RecordingStateError(self._unreadable)
        return self._log

    def snapshot(self, path: str | os.PathLike[str] | None = None) -> Trace:
        """Return what a recording that goes on holds now, and save it where a path is given."""
        if self._held is None:
            message = "nothing is being recorded; the trace itself can be read and saved"
            raise RecordingStateError(message)
        trace = Trace(self._held(), title=self._title)
        if path is not None:
            trace.save(path)
        return trace

    @cached_property
    def analysis(self) -> Analysis:
        """What the events mean: graph, tensor histories, checkpoint regions, memory."""
        return Analysis(self.log)

    @property
    def model(self) -> Analysis:
        """Deprecated name of ``analysis``."""
        warn_deprecated("Trace.model", "Trace.analysis")
        return self.analysis

    @cached_property
    def _findings(self) -> tuple[Finding, ...]:
        return diagnose(self.analysis)

    def diagnose(self) -> list[Finding]:
        """Return what is wrong and which line caused it, the surest first."""
        return list(self._findings)

    def annotate(self, error: BaseException) -> None:
        """Add the first finding to an exception, as a note that every traceback shows."""
        from autogradviz.render.text import add_note, finding_note

        try:
            for finding in self._findings[:1]:
                add_note(error, finding_note(finding))
        except Exception as failure:  # noqa: BLE001 - the error that leaves is the user's
            add_note(error, f"autogradviz could not explain this: {failure!r}")

    # --- pictures -------------------------------------------------------------------------

    @cached_property
    def scene(self) -> Scene:
        """The view model that every renderer draws."""
        return build_scene(self.analysis, self._findings, title=self._title)

    def graph(self, *, depth: int | None = None, redact: bool = False) -> GraphView:
        """Return the autograd graph as a picture.

        Args:
            depth: how many levels of modules are open; 0 shows them closed, a large number
                opens everything. By default as many as make a readable picture.
            redact: leave source text and absolute paths out.
        """
        if redact:
            return self.redacted().graph(depth=depth)
        if depth is None and "scene" in self.__dict__:
            return GraphView(self.scene)
        found, title = self._findings, self._title
        return GraphView(
            build_scene(self.analysis, found, title=title, depth=depth, graph_only=True)
        )

    def html(self, path: str | os.PathLike[str], *, redact: bool = False) -> None:
        """Write a report: one file that works offline.

        Args:
            path: where to write. Another report there is replaced, nothing else is.
            redact: leave source text and absolute paths out.
        """
        if redact:
            self.redacted().html(path)
            return
        from autogradviz.render.html import REPORT, render_html

        page = render_html(self.scene, title=self.scene.summary.title)
        log_files.write_over_own(path, page, REPORT)

    def widget(self) -> TraceWidget:
        """Return the interactive viewer for notebooks."""
        from autogradviz.render.widget import TraceWidget

        return TraceWidget(self.scene, picture=GraphView(self.scene).svg, words=self.__repr__)

    def plot_memory(self) -> go.Figure:
        """Return saved bytes over time as a plotly figure."""
        from autogradviz.render.plots import plot_memory

        return plot_memory(self.analysis)

    def plot_timeline(self) -> go.Figure:
        """Return when modules, backwards, recomputations and nodes ran, as a plotly figure."""
        from autogradviz.render.plots import plot_timeline

        return plot_timeline(self.analysis)

    def plot_gradients(self) -> go.Figure:
        """Return the norm of each parameter's gradient as a plotly figure."""
        from autogradviz.render.plots import plot_gradients

        return plot_gradients(self.analysis)

    def plot_saved_by_module(self) -> go.Figure:
        """Return saved bytes over time, stacked by module, as a plotly figure."""
        from autogradviz.render.plots import plot_saved_by_module

        return plot_saved_by_module(self.analysis)

    def _ipython_display_(self) -> None:
        self.widget().display_for_cell()

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self.widget().bundle_for_cell()

    def _display_(self) -> TraceWidget:  # marimo's
        return self.widget()

    def __rich__(self) -> Any:
        from autogradviz.render.text import render_summary

        return render_summary(self.scene)

    def __repr__(self) -> str:
        if self._log is None:
            return "<Trace, recording>"
        from autogradviz.render.text import as_text, render_summary

        return as_text(render_summary(self.scene))

    # --- tables ---------------------------------------------------------------------------

    def saved_tensors(self) -> list[SavedTensor]:
        """Return every tensor saved for backward, in the order of saving."""
        return sorted(self.analysis.saved.values(), key=lambda saved: saved.saved_seq)

    def checkpoints(self) -> list[Region]:
        """Return every checkpoint region with its recomputations."""
        return list(self.analysis.regions)

    def mutations(self) -> list[TensorHistory]:
        """Return the history of every storage that was written while or after being saved."""
        kinds = {"written", "cloned"}
        return [
            history
            for history in self.analysis.histories
            if any(entry.kind in kinds for entry in history.entries)
        ]

    def versions(self) -> tuple[VersionBumped, ...]:
        """Return every rise of a version counter."""
        return self.log.of(VersionBumped)

    def to_pandas(self) -> Mapping[str, pd.DataFrame]:
        """Return one data frame for each kind of event; needs pandas."""
        import pandas as pd

        from autogradviz.events import EVENT_TYPES, field_names

        return {
            kind.__name__: pd.DataFrame(self.log.rows(kind), columns=list(field_names(kind)))
            for kind in EVENT_TYPES
            if self.log.rows(kind)
        }

    @property
    def title(self) -> str:
        """What the trace is called: its file, else its model."""
        started = self.analysis.started
        return self._title or (started and started.model_name) or "recording"

    # --- parts ----------------------------------------------------------------------------

    def within(self, module: str) -> Trace:
        """Return what happened in some modules only.

        ``module`` is a qualified name, "h.3.attn"; ``*`` stands for anything, as in "h.*.attn".
        """
        return Trace(log_files.within(self.log, module), title=self._title)

    def redacted(self) -> Trace:
        """Return the trace without source text, values of variables and folders' names.

        Findings are then worked out without the source: some name no line.
        """
        return Trace(log_files.redact(self.log), title=self._title)

    # --- files ----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, redact: bool = False) -> None:
        """Write the trace to an ``.agv`` file: an Arrow stream that pandas can read as it is.

        Another trace at ``path`` is replaced, nothing else is; ``redact`` leaves source text and
        absolute paths out.
        """
        log_files.save(log_files.redact(self.log) if redact else self.log, path)

    def export(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,  # noqa: A002
        *,
        redact: bool = False,
    ) -> None:
        """Write the trace in another program's format.

        Args:
            path: where to write; the end of the name asks for a format. An older export of that
                format there is replaced, nothing else is.
            format: "parquet" or "sqlite" (all events), "perfetto" (the timeline; needs the extra
                of that name), "model-explorer", "graphml" or "dot" (the graph).
            redact: leave source text and absolute paths out.
        """
        from autogradviz.export import export

        export((self.redacted() if redact else self).analysis, path, format)

    def __eq__(self, other: object) -> bool:
        return self.log == other.log if isinstance(other, Trace) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def load(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in a file; works without torch.

    A torn file gives its readable part, and ``trace.log.problem`` says what is missing.

    Raises:
        FileNotFoundError: there is no such file.
        NotATraceError: the file is no trace, or one of a newer autogradviz.
    """
    from pathlib import Path

    return Trace(log_files.load(path), title=Path(path).name)
