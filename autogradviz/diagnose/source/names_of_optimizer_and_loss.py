"""Write fixes with the program's own names of its optimizer and its loss."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.statements_rewritten_as_fixes import method_calls, statements_of
from autogradviz.events import BackwardStarted, OptimizerStepped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation

_PLACEHOLDERS: Final = {
    re.compile(r"(?<![\w.])optimizer(?=\.(?:step|zero_grad)\b|\))"): (OptimizerStepped, "step"),
    re.compile(r"(?<![\w.])loss(?=\.backward\b|\)\.backward\b)"): (BackwardStarted, "backward"),
}
"""The names that fixes of rules use, the event that has the program's line, and its method."""


class NamesOfOptimizerAndLoss:
    """The names by which a program calls ``step`` and ``backward``."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def in_fix(self, fix: str, places: Sequence[SourceLocation | None]) -> str:
        """Return a fix with the program's names in place of "optimizer" and "loss".

        They are those of the finding's lines, or else those of the program if it has one of each.

        Args:
            fix: code.
            places: the lines of the finding.
        """
        for placeholder, (kind, method) in _PLACEHOLDERS.items():
            if placeholder.search(fix) is None:
                continue
            methods = (method, "zero_grad") if method == "step" else (method,)
            found = set(_names_called(places, methods))
            if not found:
                stacks = {each for (each,) in self._analysis.log.fields(kind, "stack_id")}
                found = set(_names_called(map(self._analysis.location, stacks), (method,)))
            if len(found) == 1:
                fix = placeholder.sub(found.pop(), fix)
        return fix


def _names_called(places: Iterable[SourceLocation | None], methods: Sequence[str]) -> Iterator[str]:
    """Yield the names, or attributes of names, on which methods without arguments are called."""
    for place in places:
        for statement in statements_of(place):
            for call in (call for method in methods for call in method_calls(statement, method)):
                owner = getattr(call.func, "value", None)
                if not call.args and isinstance(owner, (ast.Name, ast.Attribute)):
                    yield ast.unparse(owner)
