"""The order of rules: named groups, and ``after`` and ``before`` within a group.

Findings are sorted by confidence, and equally confident ones stay in the order of their rules, so
the explanation of an exception comes before what merely accompanied it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

Group: TypeAlias = Literal[
    "saved tensor lost",  # an exception: a saved tensor was written, detached or freed
    "recomputation raised",  # an exception during a recomputation
    "backward raised",  # an exception: a backward ran twice, or a gradient was refused
    "reentrant",  # effects of use_reentrant=True
    "operation refused",  # an exception of an operator, or at the begin of a backward
    "region",  # checkpointed or compiled regions that failed, or whose recomputation differs
    "saved tensor",  # writes to saved tensors, and their hooks, without an exception
    "optimizer",  # scaling, clipping, steps and clearing of gradients
    "gradient",  # gradients that are missing, zero, not finite, too large or too small
    "waste",  # memory, communication and steps without use
    "compilation",  # what compilers did not do, or did too often
]
"""The groups of rules, in the order in which they run."""

GROUPS: Final[tuple[Group, ...]] = get_args(Group)


class _Placed(Protocol):
    """The attributes of a rule that determine its place; see ``Rule``."""

    @property
    def name(self) -> str: ...
    @property
    def slugs(self) -> tuple[str, ...]: ...
    @property
    def group(self) -> Group: ...
    @property
    def after(self) -> str: ...
    @property
    def before(self) -> str: ...


R = TypeVar("R", bound=_Placed)


def in_order(rules: Sequence[R]) -> tuple[R, ...]:
    """Return rules in the order of their groups; within a group as given, but for constraints.

    Raises:
        ValueError: a group is unknown, a rule refers to none of its group, or the constraints are
            a cycle.
    """
    earlier: dict[str, set[str]] = {rule.name: set() for rule in rules}
    for rule in rules:
        earlier[rule.name] |= {other.name for other in _others(rule, rule.after, rules)}
        for other in _others(rule, rule.before, rules):
            earlier[other.name].add(rule.name)
    waiting = {rule.name: rule for rule in sorted(rules, key=lambda r: GROUPS.index(r.group))}
    ordered = []
    while waiting:
        ready = next((name for name in waiting if not earlier[name] & waiting.keys()), None)
        if ready is None:
            message = f"after= and before= are a cycle among the rules {', '.join(waiting)}"
            raise ValueError(message)
        ordered.append(waiting.pop(ready))
    return tuple(ordered)


def inserted(ordered: Sequence[R], rule: R) -> tuple[R, ...]:
    """Return ordered rules with another one, at the end of its group but for constraints.

    Raises:
        ValueError: its group is unknown, it refers to none of its group, or would have to be
            after one rule and before an earlier one.
    """
    places = {other.name: place for place, other in enumerate(ordered)}
    first = 1 + max((places[r.name] for r in _others(rule, rule.after, ordered)), default=-1)
    last = min(
        (places[r.name] for r in _others(rule, rule.before, ordered)),
        default=sum(GROUPS.index(other.group) <= GROUPS.index(rule.group) for other in ordered),
    )
    if first > last:
        message = f"{rule.name} cannot be after {rule.after!r} and before {rule.before!r}"
        raise ValueError(message)
    place = last if rule.before or not rule.after else first
    return (*ordered[:place], rule, *ordered[place:])


def _others(rule: R, reference: str, rules: Sequence[R]) -> list[R]:
    """Return the other rules of a rule's group that have a slug or a name; none if it is ""."""
    if rule.group not in GROUPS:
        message = (
            f"{rule.name} is in {rule.group!r}, which is none of the groups {', '.join(GROUPS)}"
        )
        raise ValueError(message)
    found = [
        other
        for other in rules
        if reference and other.group == rule.group and other is not rule
        and (other.name == reference or reference in other.slugs)
    ]  # fmt: skip
    if reference and not found:
        message = f"{rule.name} refers to {reference!r}, which is no rule of {rule.group!r}"
        raise ValueError(message)
    return found
