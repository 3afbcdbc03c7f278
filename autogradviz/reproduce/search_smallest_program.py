"""Searches for the smallest program, and for the statement that makes it fail."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.events import GradAccumulated, NormRead, ParameterSeen
from autogradviz.reproduce.program_statements import Contrast, statements_of
from autogradviz.reproduce.write_program import compared_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose import Finding
    from autogradviz.reproduce.program_statements import Program, Statement, SymptomKind, Value
    from autogradviz.reproduce.run_programs import Outcome
    from autogradviz.reproduce.write_program import Spelling


# --- parts of a program without which its gradients are right -------------------------------------


_MOST_BACKWARDS: Final = 2


def contrasts(analysis: Analysis, program: Program, finding: Finding) -> Iterator[Contrast]:
    """Yield the possible causes of wrong gradients: the finding's writes, hooks, regions."""
    packed = {
        each.packed_by for each in analysis.saved.values() if each.node_id in finding.nodes
    }  # fmt: skip
    events, line = set(finding.events), finding.culprit
    place = None if line is None else (line.filename, line.lineno)
    statements = list(program.statements())
    pairs = [each for each in statements if each.kind == "pair"]
    in_hooks = {inner for each in pairs for body in each.bodies for inner in statements_of(body)}
    written = [each for each in statements if each.written and each not in in_hooks]
    shown = [each for each in written if each.seq in events]
    at_line = [
        each for each in written
        if each.location is not None
        and (each.location.filename, each.location.lineno) == place and each not in shown
    ]  # fmt: skip
    regions = [each for each in statements if each.kind == "checkpoint"]
    choices = (
        shown,
        [*shown, *at_line] if at_line else [],
        pairs if packed & {"user", "offload", "allow_mutation"} else [],
        regions if finding.region_id is not None else [],
    )
    for causes in choices:
        if causes:
            yield Contrast(tuple(causes))


def ends(program: Program) -> Iterator[set[Statement]]:
    """Yield the statements after the first backward, after the next one, and none."""
    statements = program.main.statements
    places = [place for place, each in enumerate(statements) if each.kind == "backward"]
    for place in places[:_MOST_BACKWARDS]:
        yield set(statements[place + 1 :])
    if len(places) > _MOST_BACKWARDS:
        yield set()


def differing(
    program: Program, spelling: Spelling, dropped: set[Statement],
    run: Callable[[], Outcome],
) -> Contrast | None:  # fmt: skip
    """Return the program's contrast with the first result that differs, None if none does."""
    contrast, outcome = program.contrast, run()
    if contrast is None or outcome.type_name != "LookupError":
        return None
    values = compared_values(program, spelling, dropped)
    found = [
        (values[number % len(values)], number < len(values), is_missing)
        for number, is_missing in ast.literal_eval(outcome.message)
    ]
    regions_only = all(each.kind == "checkpoint" for each in contrast.causes)
    for value, is_gradient, is_missing in found:
        if is_gradient and value.requires_grad:
            return replace(contrast, shown=(value, "grad"), is_missing=is_missing)
        if not is_gradient and regions_only and not value.requires_grad:
            return replace(contrast, shown=(value, "data"))
    return None


# --- find symptoms --------------------------------------------------------------------------------
#
# Symptoms of findings without an exception in gradients and losses, for a program to assert.


_MISSING: Final = ("gradient-missing", "gradient-cut", "graph-lost", "loss-term-constant")
"""Findings because of which a parameter may have no gradient."""


class Symptom(NamedTuple):
    """A defect of a leaf's gradient, or of a loss."""

    tensor_id: int
    kind: SymptomKind


def find_symptoms(analysis: Analysis, finding: Finding) -> list[Symptom]:
    """Return the symptoms of a finding; none if no single gradient or loss shows it."""
    log = analysis.log
    events = set(finding.events)
    reads = log.of(NormRead)
    named = [event for event in reads if event.seq in events] or reads
    for event in named:
        if event.norm is None and finding.slug == "not-finite":
            if event.place == "root":
                return [Symptom(event.tensor_id, "not finite value")]
            losses = [
                Symptom(each.tensor_id, "finite value") for each in reads
                if (each.place, each.backward_id) == ("root", event.backward_id)
                and each.norm is not None
            ]  # fmt: skip
            return [*losses, Symptom(event.tensor_id, "not finite")]
        if event.norm == 0 and event.place == "gradient" and finding.slug == "gradient-zero":
            return [Symptom(event.tensor_id, "zero")]
    if finding.slug not in _MISSING:
        return []
    reached = set(log.column(GradAccumulated, "tensor_id"))
    parameters = [event for event in log.of(ParameterSeen) if not event.buffer]
    missed = [event for event in parameters if event.requires_grad]
    missed = [event for event in missed if event.tensor_id not in reached]
    of_finding = [event for event in missed if event.seq in events]
    return [Symptom(event.tensor_id, "missing") for event in (of_finding or missed)[:1]]


def depends_on(program: Program, leaf: Value, dropped: Collection[Statement] = ()) -> bool:
    """Return whether a backward starts from a value that is computed from a leaf.

    Only then does a missing gradient say something.
    """
    reached = {id(leaf)}
    for each in program.statements():
        if each in dropped or not any(id(value) in reached for value in each.inputs):
            continue
        if each.kind == "backward":
            return True
        reached.update(id(value) for value in (*each.outputs, *each.written))
    return False


# --- delta debugging: leaves statements out of a program as long as it does the same --------------


_NOT_COUNTED: Final = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.With)


def reduce_program(
    program: Program,
    is_same: Callable[[set[Statement]], bool],
    has_time: Callable[[], bool],
    dropped: set[Statement] | None = None,
) -> set[Statement]:
    """Return the statements that the program can do without.

    Args:
        program: it does what it is to do.
        is_same: whether the program without some statements still does.
        has_time: whether to go on.
        dropped: statements that it is already without.
    """
    items = _items(program)
    dropped = dropped or set()
    size = max(1, (len(items) + 1) // 2)
    while has_time():
        changed = False
        for start in range(len(items) - 1 - (len(items) - 1) % size, -1, -size):
            part = {each for item in items[start : start + size] for each in item}
            if part <= dropped or not has_time():
                continue
            if is_same(dropped | part):
                dropped |= part
                changed = True
        items = [item for item in items if not dropped.issuperset(item)]
        if size == 1 and not changed:
            break
        size = max(1, size // 2)
    return dropped


def _items(program: Program) -> list[list[Statement]]:
    """Return the statements in groups: one of a region's forward with those that repeat it."""
    twins = {twin for each in program.statements() for twin in each.twins}
    present = set(program.statements())
    return [
        [each, *(twin for twin in each.twins if twin in present)]
        for each in statements_of(program.main)
        if each not in twins
    ]


def count_statements(text: str) -> int:
    """Return the number of statements of a program, without imports, headings and the seed."""
    try:
        parsed = ast.parse(text)
    except SyntaxError:  # a program that could not be written whole
        return 0
    return sum(
        isinstance(each, ast.stmt)
        and not isinstance(each, _NOT_COUNTED)
        and "manual_seed" not in ast.unparse(each)
        for each in ast.walk(parsed)
    )
