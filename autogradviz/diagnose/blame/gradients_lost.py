"""Causes of lost gradients: cleared, not registered, not required, detached."""

from __future__ import annotations

import ast
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.code_run_between_events import ExecutionWindow
from autogradviz.diagnose.blame.line_candidates import (
    IN_WINDOW,
    REACHABLE,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.blame.tensors_carried_between_steps import reaches
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.statements_rewritten_as_fixes import method_calls
from autogradviz.events import FrameSeen, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, Op, SourceLocation
    from autogradviz.diagnose.blame.code_run_between_events import RecomputeWindow
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import BackwardStarted


# --- the line that cleared gradients between two moments of a recording ---------------------------


def gradients_cleared_at(
    evidence: Evidence, first: int | None, last: int | None
) -> SourceLocation | None:
    """Return the line that cleared gradients between two moments, given as stacks."""
    lines = [
        (filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in _clearing(filename)
    ]
    window = ExecutionWindow(evidence, first, last)
    found = window.best_line(lines, at_least=REACHABLE)
    if found is not None or first != last:
        return found
    # Two iterations of a loop: a line before this one in a function that was running.
    running = {
        (place.filename, place.function.replace("<module>", "")): place.lineno
        for place in evidence.analysis.user_stack(first)
    }
    return best_line(
        LineCandidate(filename, lineno, function, 1, (lineno < current, lineno))
        for filename, lineno, function in lines
        if (current := running.get((filename, function), 0))
    )


def clearing_of(step: SourceLocation) -> SourceLocation | None:
    """Return the only line that clears the gradients of a step's optimizer, if there is one.

    The optimizer is what ``step`` is called on, or its argument: ``scaler.step(optimizer)``.
    """
    owners = {
        ast.unparse(owner)
        for statement in source.simple_statements(step)
        for call in method_calls(statement, "step")
        for owner in (getattr(call.func, "value", call.func), *call.args)
    }
    found = [
        source.location(step.filename, node.lineno, function)
        for function, node in source.nodes(step.filename)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "zero_grad"
        and ast.unparse(node.func.value) in owners
    ]
    found = [each for each in found if each.function == step.function] or found
    return found[0] if len(found) == 1 else None


def _clearing(filename: str) -> Iterator[tuple[int, str]]:
    """Yield line and function of the calls of ``zero_grad``, and of assignments of None to grad."""
    for lineno, function, called in source.calls(filename, ("zero_grad",)):
        if called.endswith("zero_grad"):
            yield lineno, function
    for function, node in source.nodes(filename):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is None
            and any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
        ):
            yield node.lineno, function


# --- why ``parameters()`` of a model does not return a leaf that its forward uses -----------------


def plain_leaf_line(evidence: Evidence, name: str) -> SourceLocation | None:
    """Return the line that assigns a plain tensor, no parameter, to an attribute of a module.

    Args:
        evidence: the recording.
        name: the qualified name of the leaf; its last part is the attribute.
    """
    attribute = name.rpartition(".")[2]
    found = [
        source.location(filename, node.lineno, function)
        for filename in evidence.user_files
        for function, node in source.nodes(filename)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and any(
            isinstance(target, ast.Attribute) and target.attr == attribute
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        )
        and node.value is not None
        and "requires_grad" in (text := ast.unparse(node.value))
        and "Parameter" not in text
    ]
    return found[0] if len(found) == 1 else None


def unregistered_in(analysis: Analysis, name: str) -> str | None:
    """Return the module that calls, and does not contain, the module of a parameter's name.

    The latter is named by its class, or its place in a container that is no module: "Net.Linear" or
    "Net.layers[0]", where "Net.head" would be a submodule.
    """
    by_name = analysis.module_by_name
    parts = name.split(".")
    for length in range(2, len(parts)):
        module = by_name.get(".".join(parts[:length]))
        above = ".".join(parts[: length - 1])
        label = parts[length - 1].partition("#")[0]
        is_outside = module is not None and (label == module.type_name or "[" in label)
        if is_outside and above in by_name:
            return above
    return None


# --- lines that set ``requires_grad`` of a tensor -------------------------------------------------


def requires_grad_writes(filename: str, *, on: bool) -> list[tuple[int, str]]:
    """Return line and function of the statements that may set ``requires_grad`` to ``on``."""
    return sorted(
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if function.rpartition(".")[2] != "__init__"
        and isinstance(node, (ast.Call, ast.Assign))
        and _sets(node, on=on)
    )


def find_requires_grad_write(window: RecomputeWindow, *, on: bool) -> SourceLocation | None:
    """Return the line that set ``requires_grad`` in a window: recorded, else from the source."""
    evidence = window.evidence
    for event in evidence.analysis.log.of(RequiresGradChanged):
        within = window.region.entered_seq < event.seq < window.recomputation.started_seq
        if within and event.requires_grad == on and event.stack_id is not None:
            return evidence.analysis.location(event.stack_id)
    return window.best_line(
        (
            (filename, line, function)
            for filename in evidence.user_files
            for line, function in requires_grad_writes(filename, on=on)
        ),
        at_least=0,
    )


def _sets(node: ast.Call | ast.Assign, *, on: bool) -> bool:
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        named = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
    else:
        named = isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_"
        given = [*node.args, *[word.value for word in node.keywords]]
        value = given[0] if given else ast.Constant(value=True)
    return named and not (isinstance(value, ast.Constant) and value.value is not on)


# --- breaks of the autograd graph that no recorded op shows, found in the source ------------------


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
        used = self._evidence.analysis.user_stack(op.stack_id)
        return self.before(op.seq, used)

    def before(self, seq: int, stack: Sequence[SourceLocation]) -> End | None:
        """Return the last operation that read numbers which a statement may use.

        Args:
            seq: the event of the statement.
            stack: the user's lines, that of the statement first.
        """
        used = stack[::-1]
        for end in reversed(self._by_line.values()):
            made = self._evidence.analysis.user_stack(end.op.stack_id)[::-1]
            if end.op.seq < seq and reaches(self._evidence, made, used):
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


def lines_of_requires_grad_off(evidence: Evidence) -> list[SourceLocation]:
    """Return the lines that set ``requires_grad`` to False, in order.

    If functions have some that called what was recorded, only theirs. Others count only if a
    module has a parameter without a gradient.
    """
    found = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for line, function in requires_grad_writes(filename, on=False)
    ]
    frames = evidence.analysis.log.fields(FrameSeen, "filename", "function")
    ran = {(filename, function.replace("<module>", "")) for filename, function in frames}
    of_callers = [each for each in found if (each.filename, each.function) in ran]
    is_frozen = not all(evidence.causal_graph.requires_grad.values())
    return sorted(of_callers or (found if is_frozen else ()), key=attrgetter("lineno"))


def find_requires_grad_off(evidence: Evidence) -> SourceLocation | None:
    """Return the last line that sets ``requires_grad`` to False."""
    found = lines_of_requires_grad_off(evidence)
    return found[-1] if found else None
