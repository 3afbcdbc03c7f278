"""Symptoms of findings without an exception in gradients and losses, for a program to assert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.events import GradAccumulated, NormRead, ParameterSeen

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose import Finding
    from autogradviz.reproduce.program_model import Program, Statement, SymptomKind, Value

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
