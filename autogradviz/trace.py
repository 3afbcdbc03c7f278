"""The trace: one recording and everything that can be asked of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from autogradviz import log as log_files
from autogradviz.diagnose import diagnose
from autogradviz.errors import RecordingStateError
from autogradviz.events import VersionBumped
from autogradviz.model import Model
from autogradviz.scene import build_scene
from autogradviz.view import GraphView

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pandas as pd
    import plotly.graph_objects as go

    from autogradviz.diagnose import Finding
    from autogradviz.log import Log
    from autogradviz.model import Region, SavedTensor, TensorHistory
    from autogradviz.render.widget import TraceWidget
    from autogradviz.scene import Scene


class Trace:
    """One recording: read it, draw it, save it."""

    def __init__(self, log: Log | None = None, *, title: str | None = None) -> None:
        self._log = log
        self._title = title

    def fill(self, log: Log) -> None:
        """Give the trace its events; the recording has ended."""
        self._log = log

    @property
    def log(self) -> Log:
        """All events.

        Raises:
            RecordingStateError: while the recording is open.
        """
        if self._log is None:
            message = "the trace is being recorded; leave the with block before reading it"
            raise RecordingStateError(message)
        return self._log

    @cached_property
    def model(self) -> Model:
        """What the events mean: graph, tensor histories, checkpoint regions, memory."""
        return Model(self.log)

    @cached_property
    def _findings(self) -> tuple[Finding, ...]:
        return diagnose(self.model)

    def diagnose(self) -> list[Finding]:
        """Return what is wrong and which line caused it, the surest first."""
        return list(self._findings)

    def annotate(self, error: BaseException) -> None:
        """Add the first finding to an exception, as a note that every traceback shows."""
        from autogradviz.render.text import finding_text

        for finding in self._findings[:1]:
            note = finding_text(finding)
            if hasattr(error, "add_note"):
                error.add_note(note)
            else:  # Python 3.10 has no notes; tools that know them read the attribute
                error.__notes__ = [*getattr(error, "__notes__", []), note]

    # --- pictures -------------------------------------------------------------------------

    @cached_property
    def scene(self) -> Scene:
        """The view model that every renderer draws."""
        return build_scene(self.model, self._findings, title=self._title)

    def graph(self, *, depth: int | None = None) -> GraphView:
        """Return the autograd graph as a picture.

        Args:
            depth: how many levels of modules are open; 0 shows them closed, a large number
                opens everything. By default as many as make a readable picture.
        """
        if depth is None:
            return GraphView(self.scene)
        return GraphView(build_scene(self.model, self._findings, title=self._title, depth=depth))

    def html(self, path: str | os.PathLike[str]) -> None:
        """Write a report: one file that works offline."""
        from pathlib import Path

        from autogradviz.render.html import render_html

        title = self.scene.summary.title
        Path(path).write_text(render_html(self.scene, title=title), encoding="utf-8")

    def widget(self) -> TraceWidget:
        """Return the interactive viewer for notebooks."""
        from autogradviz.render.widget import TraceWidget

        return TraceWidget(self.scene)

    def plot_memory(self) -> go.Figure:
        """Return saved bytes over time as a plotly figure."""
        from autogradviz.render.plots import plot_memory

        return plot_memory(self.model)

    def plot_timeline(self) -> go.Figure:
        """Return when modules, backwards, recomputations and nodes ran, as a plotly figure."""
        from autogradviz.render.plots import plot_timeline

        return plot_timeline(self.model)

    def plot_gradients(self) -> go.Figure:
        """Return the norm of each parameter's gradient as a plotly figure."""
        from autogradviz.render.more_plots import plot_gradients

        return plot_gradients(self.model)

    def plot_saved_by_module(self) -> go.Figure:
        """Return saved bytes over time, stacked by module, as a plotly figure."""
        from autogradviz.render.more_plots import plot_saved_by_module

        return plot_saved_by_module(self.model)

    def _ipython_display_(self) -> None:
        from autogradviz.render.widget import display_scene

        display_scene(self.scene, GraphView(self.scene).svg(), repr(self))

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from autogradviz.render.widget import mimebundle

        return mimebundle(self.scene, GraphView(self.scene).svg(), repr(self))

    def __rich__(self) -> Any:
        from autogradviz.render.text import summary

        return summary(self.scene)

    def __repr__(self) -> str:
        if self._log is None:
            return "<Trace, recording>"
        from autogradviz.render.text import as_text, summary

        return as_text(summary(self.scene))

    # --- tables ---------------------------------------------------------------------------

    def saved_tensors(self) -> list[SavedTensor]:
        """Return every tensor saved for backward, in the order of saving."""
        return sorted(self.model.saved.values(), key=lambda saved: saved.saved_seq)

    def checkpoints(self) -> list[Region]:
        """Return every checkpoint region with its recomputations."""
        return list(self.model.regions)

    def mutations(self) -> list[TensorHistory]:
        """Return the history of every storage that was written while or after being saved."""
        kinds = {"written", "cloned"}
        return [
            history
            for history in self.model.histories
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

    # --- files ----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to an ``.agv`` file: an Arrow stream that pandas can read as it is."""
        log_files.save(self.log, path)

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
