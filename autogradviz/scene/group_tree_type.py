"""The tree of groups that nodes are drawn in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from autogradviz.analysis.types import Region
    from autogradviz.scene.schema import GroupKind


class Section(NamedTuple):
    """The part of a path that leads into a step, or into one of several separate graphs."""

    kind: Literal["step", "graph"]
    number: int


Part: TypeAlias = "str | int | Section"
"""One part of a group path: part of a module's name, a region's id, or a section."""

SECTIONS: Final = frozenset({"step", "graph"})
"""The kinds of groups that sections lead to."""


@dataclass(slots=True)
class GroupTree:
    """One group with its nodes and its subgroups."""

    kind: GroupKind
    path: str  # the module's qualified name
    region: Region | None = None  # the checkpoint region that the entire group is
    nodes: list[int] = field(default_factory=list)  # in creation order
    groups: list[GroupTree] = field(default_factory=list)
    by_part: dict[Part, GroupTree] = field(default_factory=dict)
    label: str = ""  # "1–1,000 of 5,009", "graph 2", the ops of a loop, a compiled region's name
    count: int = 1  # number of identical blocks in a run

    def all_nodes(self) -> list[int]:
        """Return the nodes in this group and its subgroups."""
        nodes = list(self.nodes)
        for group in self.groups:
            nodes += group.all_nodes()
        return nodes

    @property
    def first(self) -> GroupTree:
        """The first block of a run."""
        return self.groups[0]

    @property
    def last(self) -> GroupTree:
        """The last block of a run, also if the blocks behind the first are a run of their own."""
        last = self.groups[-1]
        return last.last if last.kind == "repeat" and self.count > last.count > 1 else last

    def oldest(self) -> int:
        """Return the first node, in creation order."""
        return min(self.all_nodes())

    def position(self) -> int:
        """Return the node that places the group among others: the last of a separate graph."""
        return max(self.all_nodes()) if self.kind in SECTIONS else self.oldest()
