"""The interface for packages that add rules and export formats.

A package names them as entry points in its ``pyproject.toml``::

    [project.entry-points."autogradviz.rules"]
    softmax = "loss_checks.rules"

    [project.entry-points."autogradviz.formats"]
    operator-counts = "loss_checks.formats:OPERATOR_COUNTS"

The first names a module with functions decorated by ``rule``, and with their pages: as ``Page``
objects, or as Markdown files in the folder ``pages`` next to the module. The second names a
``Format``. ``docs/guides/add-rules-and-formats.md`` is the guide.

Of the objects that a rule or a format gets, ``Evidence.analysis``, an ``autogradviz.Analysis``, is
as stable as the rest of the public interface; other members of ``Evidence`` may change.
"""

from __future__ import annotations

from autogradviz.analysis import Analysis
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.rule import (
    Always,
    AnyOf,
    Condition,
    Draft,
    ErrorMessage,
    NoError,
    Rule,
    rule,
)
from autogradviz.explanations.read_pages import Page
from autogradviz.export.formats import Format

__all__ = [
    "Always",
    "Analysis",
    "AnyOf",
    "Condition",
    "Draft",
    "ErrorMessage",
    "Evidence",
    "Format",
    "NoError",
    "Page",
    "Rule",
    "rule",
]
