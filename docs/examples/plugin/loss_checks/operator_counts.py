"""The writer of the format "operator-counts"."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.plugins import Analysis


def write(analysis: Analysis, path: Path) -> None:
    """Write the number of calls of each operator, the most frequent first."""
    counts = Counter(op.name for op in analysis.ops)
    lines = ["operator,calls", *(f"{name},{count}" for name, count in counts.most_common())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
