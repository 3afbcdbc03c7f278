"""The graphs of Dynamo, why they ended, and why Dynamo compiled again."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from autogradviz.compiled_graphs.source_lines import Line, innermost_user_line, line_of_frames
from autogradviz.events import (
    BackwardCaptured,
    CompiledGraphCaptured,
    CompileEnded,
    CompileStarted,
    Recompiled,
)
from autogradviz.recorder.compile.read_graph_module import target_text
from autogradviz.recorder.torch_internals.private_api import current_compile_id
from autogradviz.support.source_lines import source_line

if TYPE_CHECKING:
    from autogradviz.events import CompileTrigger
    from autogradviz.recorder.session import Session

_UTILS: Final = "torch._dynamo.utils"
_CONFIG: Final = "torch._dynamo.config"
_PREFIX: Final = "__compiled_fn"
_CALLS: Final = frozenset({"call_function", "call_method", "call_module"})
_POLICY: Final = "_checkpoint_context_fn"
"""The note of a checkpointed part of a graph that has a ``context_fn``."""
_FAILED: Final = re.compile(r"^(\d+/\d+): (.*)$", re.DOTALL)
_FROM_LINE: Final = "  # "
_NO_CODE: Final = ("", "", 0)


class DynamoTable:
    """Records compilations, the graphs that Dynamo captures, and recompilations."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[int, tuple[str, CompileTrigger]] = {}
        self._last_metrics: Any = None
        self._break_count = 0
        self._captured: list[Any] = []
        self._codes: dict[str, tuple[str, str, int]] = {}
        self._reasons: list[str] = []

    def begin(self) -> None:
        """Skip what PyTorch recorded about earlier compilations."""
        for row in _metrics():
            self._last_metrics = row
            self._read_code(row)
        self._break_count = len(_breaks())

    def on_change(self) -> None:
        """Record that a compiler started or ended on this thread."""
        state = self._session.threads.local.state
        opened = self._open.get(state.number)
        if not state.suspended:
            if opened is not None:
                del self._open[state.number]
                if opened[0]:
                    self._read_breaks(opened[0])
                    self._session.emit(CompileEnded, *opened)
                self.poll()
            return
        compile_id = current_compile_id()
        if opened is None:
            # Before a backward is compiled, the context of tracing is set first.
            trigger: CompileTrigger = "dynamo" if compile_id else "backward"
            opened = self._open[state.number] = ("", trigger)
        if compile_id and not opened[0]:
            trigger = "compiled_autograd" if compile_id.startswith("!") else opened[1]
            opened = self._open[state.number] = (compile_id, trigger)
            self.poll()
            self._session.emit(
                CompileStarted, compile_id, opened[1], stack_id=self._session.stack_id()
            )

    def on_graph(self, name: Any, graph_module: Any, *_: Any) -> None:
        """Record a graph that Dynamo has captured."""
        if not str(name).startswith(_PREFIX):
            return
        reason = getattr(graph_module, "compile_subgraph_reason", None)
        self._captured.append(reason)
        count = sum(node.op in _CALLS for node in graph_module.graph.nodes)
        parts = graph_module.children()
        policies = sum(_POLICY in getattr(part, "meta", ()) for part in parts)
        self._emit_graph(current_compile_id(), str(name), reason, count, policies)

    def _emit_graph(
        self, compile_id: str, name: str, reason: Any, count: int, policies: int = 0
    ) -> None:
        frames = getattr(reason, "user_stack", None) or []
        line: Line = line_of_frames(frames)
        self._session.emit(
            CompiledGraphCaptured, compile_id, name, frames[0].name if frames else "",
            frames[0].filename if frames else "", count, policies,
            bool(getattr(reason, "graph_break", False)), str(getattr(reason, "reason", "")),
            line.filename, line.lineno, line.function, line.text,
            tuple([frame.filename for frame in frames]),
            tuple([frame.lineno or 0 for frame in frames]),
        )  # fmt: skip

    def _read_breaks(self, compile_id: str) -> None:
        """Record the breaks of a compilation before its first op: they have no graph."""
        breaks = _breaks()
        if len(breaks) < self._break_count:  # they were reset
            self._break_count = 0
        captured, self._captured = self._captured, []
        for reason in breaks[self._break_count :]:
            if not any(reason is each for each in captured):
                self._emit_graph(compile_id, "", reason, 0)
        self._break_count = len(breaks)

    def poll(self) -> None:
        """Record what PyTorch has noted about compilations since the last call."""
        new = []
        for row in reversed(_metrics()):
            if row is self._last_metrics:
                break
            new.append(row)
        for row in reversed(new):
            self._last_metrics = row
            self._read_code(row)
            if getattr(row, "recompile_reason", None):
                self._emit_recompiled(row)
            if getattr(row, "fail_type", None) and getattr(row, "fail_user_frame_filename", None):
                self._emit_skipped(row)

    def _emit_skipped(self, row: Any) -> None:
        """Record a break after which Dynamo compiled nothing of a function, as in a loop."""
        filename, lineno = row.fail_user_frame_filename, row.fail_user_frame_lineno or 0
        self._session.emit(
            CompiledGraphCaptured, str(row.compile_id), "", row.co_name or "",
            row.co_filename or "", 0, 0, True, str(row.fail_reason), filename, lineno, "",
            source_line(filename, lineno).strip(), (), (),
        )  # fmt: skip

    def _read_code(self, row: Any) -> None:
        """Remember the function of a frame: a compilation that is given up does not name it."""
        if row.co_name:
            frame = str(row.compile_id).rpartition("/")[0]
            self._codes[frame] = (row.co_name, row.co_filename or "", row.co_firstlineno or 0)

    def on_backward_reasons(self, _compiler: Any, reasons: Any) -> None:
        """Remember why compiled autograd cannot use an earlier graph."""
        self._reasons = [str(each) for each in reasons]

    def on_backward_graph(self, _title: Any, graph_module: Any, *_: Any) -> None:
        """Record the graph of a backward that compiled autograd has captured."""
        nodes = [node for node in graph_module.graph.nodes if node.op in _CALLS]
        reasons, self._reasons = self._reasons, []
        self._session.emit(
            BackwardCaptured, current_compile_id(), type(graph_module).__name__, len(nodes),
            "; ".join(reasons), tuple([node.name for node in nodes]),
            tuple([target_text(node.target) for node in nodes]),
        )  # fmt: skip

    def _emit_recompiled(self, row: Any) -> None:
        compile_id = str(row.compile_id)
        frame, _, count = compile_id.rpartition("/")
        found = _FAILED.match(row.recompile_reason)
        failed, text = found.groups() if found else ("", row.recompile_reason)
        first, _, stack = text.partition("\n")
        line = innermost_user_line(stack)
        self._session.emit(
            Recompiled, compile_id, failed, first.partition(_FROM_LINE)[0].strip(), *line[:4],
            *self._codes.get(frame, _NO_CODE), int(count) if count.isdigit() else 0,
            getattr(sys.modules.get(_CONFIG), "recompile_limit", 0),
        )  # fmt: skip


def _metrics() -> list[Any]:
    utils: Any = sys.modules.get(_UTILS)
    return utils.get_compilation_metrics() if hasattr(utils, "get_compilation_metrics") else []


def _breaks() -> list[Any]:
    return getattr(sys.modules.get(_UTILS), "graph_break_reasons", [])
