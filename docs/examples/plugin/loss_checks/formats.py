"""The export formats of this package; an entry point in ``pyproject.toml`` names each."""

from __future__ import annotations

from autogradviz.plugins import Format

OPERATOR_COUNTS = Format(
    name="operator-counts",
    description="how often each operator ran",
    suffixes=(".csv",),
    signature=b"operator,calls\n",
    writer="loss_checks.operator_counts:write",  # imported when a file is written
)
