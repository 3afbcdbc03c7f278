"""Gradients of steps that differ between two ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.event_log.read_some_kinds_of_events import read_kinds
from autogradviz.events import (
    ParameterSeen,
    StepNormRead,
)

if TYPE_CHECKING:
    from pathlib import Path


def equal_gradients(path: Path, other: Path) -> bool:
    """Return whether two ranks had gradients of equal norms in the steps in which both were read.

    Args:
        path: the file of one rank.
        other: the file of the other one.

    Returns:
        False also if there is no such step.
    """
    ours, theirs = _norms(path), _norms(other)
    shared = ours.keys() & theirs.keys()
    return bool(shared) and all(ours[key] == theirs[key] for key in shared)


def _norms(path: Path) -> dict[tuple[int, str], float | None]:
    """Return the norms by backward and name of the parameter."""
    log = read_kinds(path, (StepNormRead, ParameterSeen))
    names = dict(log.fields(ParameterSeen, "tensor_id", "parameter_name"))
    return {
        (each.backward_id, names[each.tensor_id]): each.norm
        for each in log.of(StepNormRead)
        if each.tensor_id in names
    }
