"""Paths of state, as ``("self", "layers", "[1]", "bias")``: base, attribute, item, owners."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from autogradviz.events import path_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.events import StateChange, StateChanged


Path: TypeAlias = tuple[str, ...]
"""A variable, then attribute names, and items in brackets; see ``StateChange.state_path``."""


def is_item(step: str) -> bool:
    """Return whether a step of a path is an item in brackets."""
    return step.startswith("[")


def base(path: Path) -> Path:
    """Return a path without the items at its end: ``cache.keys`` of ``cache.keys[1]``."""
    end = len(path)
    while end > 1 and is_item(path[end - 1]):
        end -= 1
    return path[:end]


def base_name(path: Path) -> str:
    """Return a path without the items at its end, as in source: "cache.keys"."""
    return path_text(base(path))


def attribute_name(path: Path) -> str:
    """Return the last name of a path: "keys" of ``cache.keys[1]``."""
    return base(path)[-1]


def item_key(path: Path) -> str | None:
    """Return the last key as in source, "'mode'" of ``config['mode']``; None without an item."""
    return path[-1][1:-1] if is_item(path[-1]) else None


def words(path: Path) -> set[str]:
    """Return the identifiers in a path."""
    return {word for step in path for word in re.findall(r"\w+", step)}


def owners(path: Path) -> Iterator[Path]:
    """Yield ``self.layers[1]`` and ``self.layers`` of ``self.layers[1].bias``."""
    for end in range(len(path) - 1, 0, -1):
        if path[:end] != ("self",):
            yield path[:end]


def without_parts(changes: list[StateChanged]) -> list[StateChanged]:
    """Return the changes without those that follow from a change of their owner."""
    moved = {change.state_path for change in changes if _was_added_or_removed(change)}
    replaced = {change.state_path for change in changes if _was_replaced(change)}
    return [
        change
        for change in changes
        if not (_was_added_or_removed(change) and not moved.isdisjoint(owners(change.state_path)))
        and not (_was_replaced(change) and not replaced.isdisjoint(owners(change.state_path)))
    ]


def with_owner(change: StateChanged, changes: Iterable[StateChanged]) -> StateChanged:
    """Return the change of the outermost owner that was replaced, else the change itself.

    Only an owner whose write was observed counts.
    """
    known = {other.state_path: other for other in changes if other.stack_id is not None}
    above = [known[path] for path in owners(change.state_path) if path in known]
    replaced = [other for other in above if both_objects(other)]
    return replaced[-1] if replaced else change


def both_objects(change: StateChange) -> bool:
    """Return whether the identity of both values is known."""
    return change.before_id is not None and change.after_id is not None


def _was_replaced(change: StateChanged) -> bool:
    """Return whether another object is there, and its write was not observed."""
    replaced = both_objects(change) and change.before_id != change.after_id
    return replaced and change.stack_id is None


def _was_added_or_removed(change: StateChanged) -> bool:
    return change.change_kind in {"added", "removed"}
