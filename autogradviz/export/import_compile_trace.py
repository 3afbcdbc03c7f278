"""Logs that PyTorch writes to a folder named by ``TORCH_TRACE``, as events of a recording.

A file has records of one line each: a prefix with the time, then JSON. Lines that begin with a tab
belong to the record above. Graphs are text, so regions lack what the text does not say, and nothing
is known about runs.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz._version import __version__
from autogradviz.compiled_graphs.events_and_slots_of_regions import (
    MISSING_IN_TEXT,
    RegionFacts,
    emit_region,
)
from autogradviz.compiled_graphs.read_graph_text import read_graph_text
from autogradviz.compiled_graphs.user_line_in_stack_text import innermost_user_line
from autogradviz.errors import NotATraceError
from autogradviz.event_log import Log
from autogradviz.events import (
    CacheDecided,
    CompiledGraphCaptured,
    CompileEnded,
    CompileStarted,
    FrameSeen,
    Recompiled,
    RecordingEnded,
    RecordingStarted,
    StackSeen,
)
from autogradviz.support.source_lines_and_libraries import is_library_anywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.events import Event

_RECORD: Final = re.compile(r"^[VIWEC]\d{4} (\d\d:\d\d:\d\d\.\d{6}) [^\]]*\] (\{.*)$")
_FAILED: Final = re.compile(r"^(\d+/\d+): ([^\n]*)(.*)$", re.DOTALL)
_BREAK_TEXT: Final = "Graph Break Reason: "
_BREAK_STACK: Final = "User code traceback:"
_GRAPHS: Final = {
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
}
_CACHE: Final = "aotautograd_cache_"
_CALL: Final = re.compile(r"^\s*\w+(?:: [^=]+)? = ", re.MULTILINE)


class _Record(NamedTuple):
    time_ns: int
    head: dict[str, Any]
    text: str


class _Compilation:
    """The records of one compilation until it ends."""

    def __init__(self, started_ns: int, stack_id: int | None) -> None:
        self.started_ns = started_ns
        self.stack_id = stack_id
        self.graph_text: str | None = None
        self.graph_ns = started_ns
        self.break_text = ""
        self.recompile_text = ""
        self.cache: tuple[str, str, str] | None = None
        self.inductor = False
        self.graphs: dict[str, str] = {}
        self.regions: list[dict[str, str]] = []


def import_compile_trace(folder: str | Path) -> Log:
    """Return the events of all logs in a folder.

    Args:
        folder: the folder that ``TORCH_TRACE`` named.

    Raises:
        FileNotFoundError: if there is no such folder.
        NotATraceError: if it has no log of PyTorch.
    """
    folder = Path(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    reader = _Importer()
    for thread, path in enumerate(files):
        reader.read(path, thread)
    if not reader.found:
        message = f"{folder} has no log that TORCH_TRACE wrote."
        raise NotATraceError(message)
    return reader.finish()


def _records(path: Path) -> Iterator[_Record]:
    """Yield the records of a file; other lines are skipped."""
    began: datetime | None = None
    head: tuple[int, dict[str, Any]] | None = None
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("\t"):
            lines.append(line[1:])
            continue
        if head is not None:
            yield _Record(*head, "\n".join(lines))
        head, lines = None, []
        found = _RECORD.match(line)
        if found is None:
            continue
        try:
            content = json.loads(found[2])
        except ValueError:  # cut off
            continue
        if isinstance(content, dict):
            now = datetime.strptime(found[1], "%H:%M:%S.%f")  # noqa: DTZ007 - differences only
            began = began or now
            head = int((now - began).total_seconds() % 86_400 * 1e9), content
    if head is not None:
        yield _Record(*head, "\n".join(lines))


class _Importer:
    """Turns records into events."""

    def __init__(self) -> None:
        self.found = False
        self._log = Log()
        self._seq = 0
        self._thread = 0
        self._time_ns = 0
        self._names: dict[int, str] = {}
        self._frames: dict[tuple[Any, ...], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._open: dict[str, _Compilation] = {}
        self._region_count = 0
        self._emit(RecordingStarted, 0, __version__, "", "", None, ("imported",))

    def _emit(self, kind: type[Event], /, *values: Any, stack_id: int | None = None) -> None:
        row = (self._seq, self._time_ns, self._thread, stack_id, *values)
        self._log.extend_rows(kind, [row])
        self._seq += 1

    def finish(self) -> Log:
        """Return the log, with its end."""
        self._emit(RecordingEnded, self._seq, 0)
        return self._log

    def read(self, path: Path, thread: int) -> None:
        """Read one file; each process of a program wrote its own."""
        self._thread = thread
        self._names, self._open = {}, {}
        for record in _records(path):
            self._read_record(record)
        for compile_id in list(self._open):  # they failed, or the file is cut off
            self._close(compile_id, {})

    def _read_record(self, record: _Record) -> None:
        head = record.head
        if isinstance(head.get("str"), list):
            name, number = head["str"]
            self._names[number] = name
            return
        if not isinstance(head.get("frame_id"), int):
            return
        self.found = True
        self._time_ns = max(self._time_ns, record.time_ns)
        compile_id = f"{head['frame_id']}/{head.get('frame_compile_id')}"
        if "dynamo_start" in head:
            reasons = self._open.pop(compile_id, None)
            stack_id = self._stack(head["dynamo_start"].get("stack") or [])
            started = self._open[compile_id] = _Compilation(record.time_ns, stack_id)
            started.recompile_text = reasons.recompile_text if reasons else ""
            return
        if compile_id not in self._open:
            if "bwd_compilation_metrics" in head:
                return
            self._open[compile_id] = _Compilation(record.time_ns, None)
        self._read_part(compile_id, self._open[compile_id], record)

    def _read_part(self, compile_id: str, opened: _Compilation, record: _Record) -> None:
        head = record.head
        artifact = (head.get("artifact") or {}).get("name", "")
        graph = next((name for key, name in _GRAPHS.items() if key in head), None)
        if graph is not None:
            opened.graphs[graph] = record.text
            if graph in {"backward", "inference"}:
                opened.regions.append(opened.graphs)
                opened.graphs = {}
        elif "dynamo_output_graph" in head:
            opened.graph_text, opened.graph_ns = record.text, record.time_ns
        elif artifact == "dynamo_graph_break_reason":
            opened.break_text = record.text
        elif artifact == "recompile_reasons":
            opened.recompile_text = _first_reason(record.text)
        elif artifact.startswith(_CACHE) and artifact.removeprefix(_CACHE) in _DECISIONS:
            opened.cache = _cache_decision(artifact.removeprefix(_CACHE), record.text)
        elif any(key.startswith("inductor_") for key in head) or artifact.startswith("fx_graph_"):
            opened.inductor = True
        elif "compilation_metrics" in head:
            self._close(compile_id, head["compilation_metrics"])

    def _stack(self, frames: list[dict[str, Any]]) -> int:
        """Define a stack, whose frames are outermost first; return its id."""
        frame_ids = []
        for frame in reversed(frames):
            filename = self._names.get(frame.get("filename", -1), "")
            line = (
                filename, frame.get("line", 0), frame.get("name", ""), frame.get("loc", ""),
                is_library_anywhere(filename),
            )  # fmt: skip
            if line not in self._frames:
                self._frames[line] = len(self._frames)
                self._emit(FrameSeen, self._frames[line], *line)
            frame_ids.append(self._frames[line])
        key = tuple(frame_ids)
        if key not in self._stacks:
            self._stacks[key] = len(self._stacks)
            self._emit(StackSeen, key, stack_id=self._stacks[key])
        return self._stacks[key]

    def _close(self, compile_id: str, metrics: dict[str, Any]) -> None:
        """Emit the events of a compilation that has ended."""
        opened, now_ns = self._open.pop(compile_id), self._time_ns
        code = metrics.get("co_name") or "", metrics.get("co_filename") or ""
        self._time_ns = opened.started_ns
        self._emit(CompileStarted, compile_id, "dynamo", stack_id=opened.stack_id)
        if opened.recompile_text:
            self._emit_recompiled(compile_id, opened.recompile_text, code, metrics)
        self._time_ns = opened.graph_ns
        if opened.graph_text is not None or opened.break_text:
            self._emit_captured(compile_id, opened, code)
        if opened.cache is not None:
            self._emit(CacheDecided, compile_id, *opened.cache)
        for graphs in opened.regions:
            self._emit_region(compile_id, graphs, "inductor" if opened.inductor else "")
        self._time_ns = now_ns
        self._emit(CompileEnded, compile_id, "dynamo")

    def _emit_recompiled(
        self, compile_id: str, text: str, code: tuple[str, str], metrics: dict[str, Any]
    ) -> None:
        found = _FAILED.match(text)
        failed, guard, stack = found.groups() if found else ("", text, "")
        count = compile_id.rpartition("/")[2]
        line = innermost_user_line(stack)
        self._emit(
            Recompiled, compile_id, failed, guard.partition("  # ")[0].strip(), *line[:4], *code,
            metrics.get("co_firstlineno") or 0, int(count) if count.isdigit() else 0, 0,
        )  # fmt: skip

    def _emit_captured(self, compile_id: str, opened: _Compilation, code: tuple[str, str]) -> None:
        text = opened.graph_text or ""
        reason, _, stack = opened.break_text.partition(_BREAK_STACK)
        details = reason.partition(_BREAK_TEXT)[2].partition("\n\n")
        line = innermost_user_line(stack)
        self._emit(
            CompiledGraphCaptured, compile_id, "", *code, len(_CALL.findall(text)), 0,
            bool(opened.break_text), (details[2] or details[0]).strip() or "return_value",
            *line[:4], (), (),
        )  # fmt: skip

    def _emit_region(self, compile_id: str, graphs: dict[str, str], backend: str) -> None:
        read = {name: read_graph_text(text) for name, text in graphs.items()}
        number = self._region_count
        self._region_count += 1
        missing = ("runs", *(MISSING_IN_TEXT if "backward" in read else ("modules",)))
        facts = RegionFacts(
            number,
            compile_id,
            backend,
            "log",
            missing,
            joint=read.get("joint", ()),
            forward=read.get("forward", ()),
            backward=read.get("backward", ()),
            inference=read.get("inference", ()),
        )
        emit_region(self._emit, number, facts)


_DECISIONS: Final = frozenset({"hit", "miss", "bypass"})


def _cache_decision(decision: str, text: str) -> tuple[str, str, str]:
    """Return the fields of ``CacheDecided`` from its decision on."""
    try:
        content = json.loads(text)
    except ValueError:
        content = {}
    key = "" if decision == "bypass" else str(content.get("key", ""))
    reason = str(content.get("cache_bypass_reason", "")) if decision == "bypass" else ""
    return decision, key, reason


def _first_reason(text: str) -> str:
    """Return the newest guard that failed, of one or several."""
    try:
        reasons = json.loads(text)
    except ValueError:
        return text
    return str(reasons[0]) if isinstance(reasons, list) and reasons else text
