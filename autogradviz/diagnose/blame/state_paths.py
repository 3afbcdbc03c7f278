"""What differs with something else: the parts of an object that was replaced, or is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.events import StateChanged

ABSENT: Final = "absent"
_PART: Final = re.compile(r"(\.\w+|\[[^\[\]]*\])$")  # "self.layers[1]" of "self.layers[1].bias"


def owners(name: str) -> Iterator[str]:
    """Yield "self.layers.1" and "self.layers" of "self.layers.1.training", the nearest first."""
    while (part := _PART.search(name)) is not None:
        name = name[: part.start()]
        if name != "self":
            yield name


def without_parts(changes: list[StateChanged]) -> list[StateChanged]:
    """Leave out what came, went or was replaced with what it is a part of."""
    alone = {change.state_name for change in changes if _came_or_went(change)}
    other = {change.state_name for change in changes if _is_another(change)}
    return [
        change
        for change in changes
        if not (_came_or_went(change) and not alone.isdisjoint(owners(change.state_name)))
        and not (_is_another(change) and not other.isdisjoint(owners(change.state_name)))
    ]


def with_owner(change: StateChanged, changes: Iterable[StateChanged]) -> StateChanged:
    """Return the change that brought another along: the outermost object that was replaced.

    Only one whose line was seen proves anything; without that the change itself is returned.
    """
    known = {other.state_name: other for other in changes if other.stack_id is not None}
    brought = [known[name] for name in owners(change.state_name) if name in known]
    replaced = [other for other in brought if "#" in other.before and "#" in other.after]
    return replaced[-1] if replaced else change


def _is_another(change: StateChanged) -> bool:
    """Return whether another object stands there, and nobody was seen putting it there."""
    numbers = [re.findall(r"#\d+", text) for text in (change.before, change.after)]
    return change.stack_id is None and bool(all(numbers)) and numbers[0] != numbers[1]


def _came_or_went(change: StateChanged) -> bool:
    return ABSENT in {change.before, change.after}
