"""The option ``--break`` of ``autogradviz run``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.breakpoints.stop_condition import parse_condition
from autogradviz.recording.break_on_argument import condition_of, finding_to_stop_at
from autogradviz.trace import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.breakpoints.stop_condition import StopCondition
    from autogradviz.cli.run_script import Program

_FINDING: Final = "finding"


def read_break_options(
    texts: Sequence[str], program: Program
) -> tuple[Program, tuple[StopCondition, ...]]:
    """Return the program and the conditions of ``--break``.

    ``--break finding`` takes the trace from the end of the command line; the program does not get
    that argument.

    Raises:
        ValueError: if a condition is none, or the trace has no finding to stop at.
        OSError: if the trace cannot be read.
    """
    conditions = []
    for text in texts:
        kind, _, path = text.partition(":")
        if kind != _FINDING:
            conditions.append(parse_condition(text))
            continue
        if not path:
            if not program.arguments or not program.arguments[-1].endswith(".agv"):
                message = "--break finding needs a trace as the last argument, or finding:TRACE"
                raise ValueError(message)
            path = program.arguments[-1]
            program = replace(program, arguments=program.arguments[:-1])
        trace = load(path)
        try:
            conditions.append(condition_of(finding_to_stop_at(trace.diagnose())))
        except ValueError as error:
            message = f"{path}: {error}"
            raise ValueError(message) from None
    return program, tuple(conditions)
