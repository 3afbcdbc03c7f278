"""The tools of ``autogradviz mcp``: bounded answers from one recording, which they only read."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.cli.show import overview
from autogradviz.comparison.compare_traces import compare
from autogradviz.continuous_integration.accepted_findings import describe_states, report
from autogradviz.errors import UnknownTargetError
from autogradviz.explanations.read_pages import explain
from autogradviz.render.terminal_text import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from autogradviz.analysis import Node, SavedTensor, SourceLocation
    from autogradviz.trace import Trace

MOST_CHARACTERS: Final = 8_000
"""Of one answer."""

MOST_ENTRIES: Final = 20
"""Of one list; the argument ``first`` continues it."""

_LINES_AROUND: Final = 15

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_FIRST: Final = {**_NUMBER, "description": "the number of the first entry, from 0"}

_ARGUMENTS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "findings": {"first": _FIRST},
    "why": {
        "target": {
            **_TEXT,
            "description": 'a parameter, module, variable or node, "error", "loss" or "memory"',
        },
    },
    "audit": {"first": _FIRST},
    "node": {"node": {**_TEXT, "description": 'the number or the name, "AddmmBackward0"'}},
    "tensor": {"tensor_id": {**_NUMBER, "description": "as in the answers of node"}},
    "source": {
        "file": {**_TEXT, "description": 'the end of the path, "train.py"'},
        "line": {**_NUMBER, "description": "from 1"},
    },
    "explain": {"name": {**_TEXT, "description": 'slug or code, "graph-lost"'}},
}  # fmt: skip


class Tools:
    """The tools, one method each; the first line of its docstring is its description."""

    def __init__(self, trace: Trace, other: Trace | None = None, *, root: Path) -> None:
        self._trace = trace
        self._other = other
        self._root = root

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the answer of a tool, cut off after ``MOST_CHARACTERS``.

        Raises:
            UnknownTargetError: no such tool, argument or target.
            TypeError: an argument has another type.
        """
        known = _ARGUMENTS.get(name, {})
        required = {each for each in known if each != "first"}
        if name not in NAMES or not required <= arguments.keys() <= known.keys():
            message = f"no tool {name!r} with the arguments {sorted(arguments)}"
            raise UnknownTargetError(message)
        for each, value in arguments.items():
            kind = int if known[each]["type"] == "integer" else str
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or (isinstance(value, int) and value < 0):
                message = f"{each} is no {known[each]['type']}, or negative"
                raise TypeError(message)
        tool: Callable[..., str] = getattr(self, name)
        return _bounded(tool(**arguments))

    def overview(self) -> str:
        """Steps, time, saved memory by module, and titles of the findings."""
        return as_text(overview(self._trace))

    def findings(self, first: int = 0) -> str:
        """The findings: code, confidence, culprit, explanation and fix."""
        pairs = [("", finding) for finding in self._trace.diagnose()]
        found = report(pairs, Counter(), self._root, self._trace.log)
        head = describe_states(found) or f"{len(found)} findings"
        return _listed(head, (each.as_json(self._root) for each in found), first)

    def why(self, target: str) -> str:
        """The way from a symptom to its cause: of a parameter, node, error, loss, or memory."""
        return str(self._trace.why(target))

    def audit(self, first: int = 0) -> str:
        """The lines that changed gradients or memory, largest effect first."""
        entries = self._trace.audit()
        return _listed(f"{len(entries)} entries", map(asdict, entries), first)

    def node(self, node: str) -> str:
        """An autograd node: module, line, saved tensors, next nodes, runs."""
        nodes = self._trace.analysis.graph.nodes
        if node.isdecimal() and int(node) in nodes:
            chosen = [nodes[int(node)]]
        else:
            chosen = [each for each in nodes.values() if each.name == node]
        if not chosen:
            message = f"no node {node!r}"
            raise UnknownTargetError(message)
        following = defaultdict(list)
        for edge in self._trace.analysis.graph.edges:
            following[edge.source].append(f"{edge.target} {nodes[edge.target].name}")
        head = f"{len(chosen)} nodes" if len(chosen) > 1 else ""
        return _listed(head, (_node(each, following[each.node_id]) for each in chosen), 0)

    def tensor(self, tensor_id: int) -> str:
        """A tensor: shape, dtype, and the history of its memory, if backward saved it."""
        analysis = self._trace.analysis
        tensor = analysis.tensors[tensor_id]
        if not tensor.dtype:
            message = f"no tensor {tensor_id}"
            raise UnknownTargetError(message)
        names = analysis.parameters.get(tensor_id, ())
        head = json.dumps({**asdict(tensor), "parameter": names}, default=str)
        history = analysis.history(tensor.storage_id)
        entries = history.entries if history is not None else ()
        return _listed(f"{head}\n{len(entries)} events of its memory", map(_brief, entries), 0)

    def memory(self) -> str:
        """Bytes saved for backward: in total, and the lines and modules that hold the peak."""
        memory = self._trace.analysis.saved_memory
        lines, modules = Counter[str](), Counter[str]()
        for each in memory.storages:
            if each.at_peak:
                lines[f"{each.filename}:{each.lineno}" if each.filename else "?"] += each.nbytes
                modules[each.module or "(no module)"] += each.nbytes
        parts = [json.dumps(asdict(memory.total()))]
        for title, counts in (("lines", lines), ("modules", modules)):
            parts.append(f"{len(counts)} {title} hold the peak:")
            ranked = counts.most_common(MOST_ENTRIES)
            parts += [f"{format_bytes(nbytes)}  {name}" for name, nbytes in ranked]
        return "\n".join(parts)

    def source(self, file: str, line: int) -> str:
        """Recorded source text around a line, and the ops that the line called."""
        recorded = self._trace.analysis.source_lines
        ops = [op for op in self._trace.analysis.ops if _is_at(op.location, file, line)]
        texts = {op.location.lineno: op.location.text for op in ops[:1] if op.location}
        texts |= {
            number: text for (name, number), text in recorded.items()
            if _ends_with(name, file) and abs(number - line) <= _LINES_AROUND
        }  # fmt: skip
        if not texts:
            message = f"the recording has no text of {file}:{line}"
            raise UnknownTargetError(message)
        shown = [f"{number:5d}  {texts[number]}" for number in sorted(texts)]
        calls = Counter((op.name, op.phase) for op in ops).most_common(MOST_ENTRIES)
        shown += [f"{count} × {name} in {phase}" for (name, phase), count in calls]
        return "\n".join(shown)

    def compare(self) -> str:
        """Changes between this recording and the other one that the server was given."""
        if self._other is None:
            message = "the server has one recording; start it as autogradviz mcp TRACE OTHER"
            raise UnknownTargetError(message)
        return as_text(compare(self._trace, self._other))

    def explain(self, name: str) -> str:
        """The documentation page of a finding, by its slug or code."""
        return str(explain(name))


NAMES: Final = tuple(
    name for name in vars(Tools) if not name.startswith("_") and name != "call"
)  # fmt: skip
"""The names of the tools."""


def describe_tools() -> list[dict[str, Any]]:
    """Return name, description and arguments of each tool, as the protocol wants them."""
    return [
        {
            "name": name,
            "description": (getattr(Tools, name).__doc__ or name).partition("\n")[0],
            "inputSchema": {
                "type": "object",
                "properties": _ARGUMENTS.get(name, {}),
                "required": [each for each in _ARGUMENTS.get(name, {}) if each != "first"],
                "additionalProperties": False,
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }
        for name in NAMES
    ]


def _bounded(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    left = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}\n… {left:,} more characters are left out"


def _listed(head: str, entries: Iterable[dict[str, Any]], first: int) -> str:
    """Return entries from ``first`` on, one line of JSON each, and how many are left out."""
    rows = [json.dumps(entry, default=str, ensure_ascii=False) for entry in entries]
    shown: list[str] = []
    for row in rows[first : first + MOST_ENTRIES]:
        if shown and sum(map(len, shown)) + len(row) > MOST_CHARACTERS * 0.9:
            break
        shown.append(row)
    left = len(rows) - first - len(shown)
    tail = [f"{left} more, from first={first + len(shown)} on"] if left > 0 else []
    return "\n".join([*([head] if head else []), *shown, *tail])


def _brief(entry: Any) -> dict[str, Any]:
    """Return the attributes of an object that have a value, its line as text."""
    found = {name: getattr(entry, name) for name in entry.__dataclass_fields__}
    return {
        name: str(value) if name == "location" else value
        for name, value in found.items()
        if value not in {None, "", ()}
    }


def _node(node: Node, following: list[str]) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "name": node.name,
        "module": node.module,
        "line": str(node.location) if node.location is not None else None,
        "text": node.location.text if node.location is not None else None,
        "op": node.op.overload if node.op is not None else None,
        "parameter": node.parameter.name if node.parameter is not None else None,
        "state": node.state,
        "runs": node.runs,
        "ms": node.duration_ns / 1e6,
        "region_id": node.region_id,
        "saved": [_saved(each) for each in node.saved[:MOST_ENTRIES]],
        "next": following[:MOST_ENTRIES],
    }


def _saved(saved: SavedTensor) -> dict[str, Any]:
    tensor = saved.tensor
    return {
        "slot": saved.slot,
        "tensor_id": tensor.tensor_id,
        "shape": tensor.shape,
        "dtype": tensor.dtype,
        "nbytes": tensor.nbytes,
        "version": saved.version,
        "changed_version": saved.changed_version,
        "packed_by": saved.packed_by,
    }


def _is_at(location: SourceLocation | None, file: str, line: int) -> bool:
    return location is not None and location.lineno == line and _ends_with(location.filename, file)


def _ends_with(path: str, end: str) -> bool:
    return f"/{path}".replace("\\", "/").endswith(f"/{end.lstrip('/')}")
