"""Parts of a program without which its gradients are right."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.reproduce.program_model import Contrast, statements_of
from autogradviz.reproduce.write_program import compared_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose import Finding
    from autogradviz.reproduce.program_model import Program, Statement
    from autogradviz.reproduce.run_programs import Outcome
    from autogradviz.reproduce.write_program import Spelling

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
