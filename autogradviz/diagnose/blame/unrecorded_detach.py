"""Breaks of the autograd graph that no recorded op shows, found in the source."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.carried_tensor import reaches
from autogradviz.diagnose.blame.code_run_between import IN_WINDOW, ExecutionWindow
from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.blame.requires_grad_set import requires_grad_writes
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import BackwardStarted

CREATING: Final = frozenset({"lift_fresh", "from_numpy", "detach_"})
"""Ops that make tensors of numbers."""

NUMBERS: Final = frozenset({"tolist", "item", "numpy", "float", "int", "__array__", "asarray"})
"""Functions that return the numbers of a tensor."""

_COPIES: Final = ("detach", ".data", "numpy")
_READING: Final = frozenset({"_local_scalar_dense", "detach"})
_NEW: Final = frozenset({"tensor", "as_tensor", "FloatTensor", "Tensor", "new_tensor"})


def find_detach(evidence: Evidence, op: Op, started: BackwardStarted) -> SourceLocation | None:
    """Return the call of ``detach_`` nearest before an op that read the tensor."""
    window = ExecutionWindow(evidence, op.stack_id, started.stack_id)
    here = op.location
    return best_line(
        LineCandidate(
            filename,
            lineno,
            function,
            certainty=1,
            preference=(
                window.ran_in_window(filename, function, lineno) != IN_WINDOW,  # not after the op
                here is not None and (filename, function) == (here.filename, here.function),
                lineno,
            ),
        )
        for filename in evidence.user_files
        for lineno, function, called in source.calls(filename, ("detach_",))
        if called.endswith("detach_")
    )


def find_conversion_to_numbers(made: SourceLocation) -> SourceLocation | None:
    """Return the last line, in a tensor's function, that read the numbers it was created from."""
    for name, owner in source.functions(made.filename):
        if name != made.function:
            continue
        nodes = sorted(source.own_nodes(owner), key=lambda node: getattr(node, "lineno", 0))
        used = {n.id for n in nodes if isinstance(n, ast.Name) and n.lineno == made.lineno}
        lines = [
            node.lineno
            for node in nodes
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
            and node.lineno < made.lineno
            and used & set(_names(node))
            and _reads_numbers(node.value)
        ]
        if lines:
            return source.location(made.filename, lines[-1], name)
    return None


def is_made_of_literals(made: SourceLocation) -> bool:
    """Return whether the values of a new tensor are written out: ``torch.tensor([0.0])``."""
    calls = [
        node
        for statement in source.simple_statements(made)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and source.last_name(node.func) in _NEW and node.args
    ]
    return bool(calls) and not any(
        isinstance(part, (ast.Name, ast.Call)) for node in calls for part in ast.walk(node.args[0])
    )


class NumberReads:
    """The ops that read numbers of tensors with a graph, by ``item()`` or a detach."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        graph, flow = evidence.causal_graph, Flow(evidence)
        self._by_line: dict[SourceLocation | None, End] = {}
        for index, name in enumerate(graph.op_names):
            op = evidence.analysis.op_at(graph.op_seqs[index])
            if name in _READING and op is not None and op.phase == "forward":
                end = flow.end_at(op, set()) if graph.has_graph(index, 0) else None
                if end is not None and (end.kind == "number" or _copies(end)):
                    self._by_line.pop(end.culprit, None)
                    self._by_line[end.culprit] = end

    def of(self, op: Op) -> End | None:
        """Return the operation that read the numbers of the tensor that an op creates."""
        line = find_conversion_to_numbers(op.location) if op.location is not None else None
        if line is not None and op.name in CREATING:
            return self._by_line.get(line) or End("fresh", op, line)
        stack = self._evidence.analysis.user_stack
        used = stack(op.stack_id)[::-1]
        for end in reversed(self._by_line.values()):
            made = stack(end.op.stack_id)[::-1]
            if end.op.seq < op.seq and reaches(self._evidence, made, used):
                return end if end.kind == "number" else replace(end, guessed=True)
        return None


def _copies(end: End) -> bool:
    """Return whether a line reads the numbers of a tensor by a detach of its own."""
    text = end.culprit.text if end.culprit is not None else ""
    return end.kind == "detach" and any(word in text for word in _COPIES)


def _names(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    yield from (part.id for target in targets for part in ast.walk(target)
                if isinstance(part, ast.Name))  # fmt: skip


def _reads_numbers(value: ast.expr | None) -> bool:
    return value is not None and any(
        isinstance(part, ast.Call)
        and getattr(part.func, "attr", getattr(part.func, "id", "")) in NUMBERS
        for part in ast.walk(value)
    )


def find_requires_grad_off(evidence: Evidence) -> SourceLocation | None:
    """Return the last line that sets ``requires_grad`` to False."""
    found = [
        (filename, line, function)
        for filename in evidence.user_files
        for line, function in requires_grad_writes(filename, on=False)
    ]
    return source.location(*max(found, key=lambda place: place[1])) if found else None
