"""Write fixes with the program's own names of its optimizer and its loss."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.statements_rewritten_as_fixes import statements_of
from autogradviz.events import BackwardStarted, OptimizerStepped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from autogradviz.analysis import Analysis, SourceLocation

_PLACEHOLDERS: Final = {
    re.compile(r"(?<![\w.])optimizer(?=\.(?:step|zero_grad)\b|\))"): (OptimizerStepped, "step"),
    re.compile(r"(?<![\w.])loss(?=\.backward\b|\)\.backward\b)"): (BackwardStarted, "backward"),
}
"""The names that fixes of rules use, the event that has the program's line, and its method."""


class NamesOfOptimizerAndLoss:
    """The names by which a program calls ``step`` and ``backward``."""

    def __init__(self, analysis: Analysis) -> None:
        self._names: dict[re.Pattern[str], str] = {}
        for placeholder, (kind, method) in _PLACEHOLDERS.items():
            stacks = {stack_id for (stack_id,) in analysis.log.fields(kind, "stack_id")}
            found = set(_names_called(map(analysis.location, stacks), {method}))
            if len(found) == 1:
                self._names[placeholder] = found.pop()

    def in_fix(self, fix: str, places: Sequence[SourceLocation | None]) -> str:
        """Return a fix with the program's names in place of "optimizer" and "loss".

        They are those of the finding's lines, or else those of the program if it has one of each.

        Args:
            fix: code.
            places: the lines of the finding.
        """
        for placeholder, (_, method) in _PLACEHOLDERS.items():
            methods = {method, "zero_grad"} if method == "step" else {method}
            own = set(_names_called(places, methods))
            name = own.pop() if len(own) == 1 else self._names.get(placeholder)
            if name is not None and not own:
                fix = placeholder.sub(name, fix)
        return fix


def _names_called(
    places: Iterable[SourceLocation | None], methods: AbstractSet[str]
) -> Iterator[str]:
    """Yield the names, or attributes of names, on which methods without arguments are called."""
    for place in places:
        for node in (node for each in statements_of(place) for node in ast.walk(each)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in methods
                and not node.args
                and isinstance(node.func.value, (ast.Name, ast.Attribute))
            ):
                yield ast.unparse(node.func.value)
