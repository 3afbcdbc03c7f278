"""The line of a custom Function that gives its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.source import source_index as source
from autogradviz.events import FrameSeen

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, SourceLocation


def backward_line(analysis: Analysis, name: str) -> SourceLocation | None:
    """Return the last return statement in the backward of a custom Function of the user."""
    files = dict.fromkeys(f.filename for f in analysis.log.of(FrameSeen) if not f.library)
    for filename in files:
        for function, owner in source.functions(filename):
            parts = function.split(".")
            if parts[-1] == "backward" and len(parts) > 1 and parts[-2] == name:
                line = source.last_return(owner)
                if line is not None:
                    return source.location(filename, line, function)
    return None
