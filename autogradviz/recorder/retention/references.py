"""Which definitions some events use."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from autogradviz.events import (
    EVENT_TYPES,
    FrameSeen,
    HookRegistered,
    ModuleSeen,
    ParameterSeen,
    SourceLineRead,
    StackSeen,
    TensorSeen,
    field_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autogradviz.event_log import Log, Row
    from autogradviz.events import Event

_TENSORS: Final = frozenset({"tensor_id", "clone_id"})
_TENSOR_LISTS: Final = frozenset({"inputs", "outputs", "written", "root_tensor_ids"})
_MODULES: Final = frozenset({"module_id", "parent_module_id"})


def _places(names: Iterable[str]) -> dict[type[Event], list[int]]:
    wanted = frozenset(names)
    return {
        kind: [place for place, name in enumerate(field_names(kind)) if name in wanted]
        for kind in EVENT_TYPES
    }


_AT: Final = {
    name: _places(names)
    for name, names in {
        "tensors": _TENSORS,
        "tensor lists": _TENSOR_LISTS,
        "modules": _MODULES,
        "hooks": {"hook_id"},
        "stacks": {"stack_id"},
    }.items()
}
_FRAMES: Final = field_names(StackSeen).index("frame_ids")


class References:
    """The ids that events of some kinds use."""

    def __init__(self, log: Log, kinds: Iterable[type[Event]]) -> None:
        self._log = log
        passing = list(kinds)
        kinds = [*passing, HookRegistered, ParameterSeen]
        self.tensors = self._collect("tensors", kinds) | self._collect_lists(kinds)
        self.modules = self._collect("modules", passing)
        self.hooks = self._collect("hooks", passing)
        self.stacks = self._collect("stacks", kinds)

    def _collect(self, what: str, kinds: Iterable[type[Event]]) -> set[int]:
        return set(chain.from_iterable(self._columns(what, kinds)))

    def _collect_lists(self, kinds: Iterable[type[Event]]) -> set[int]:
        lists = chain.from_iterable(self._columns("tensor lists", kinds))
        return set(chain.from_iterable(lists))

    def _columns(self, what: str, kinds: Iterable[type[Event]]) -> Iterator[list[Any]]:
        for kind in kinds:
            for place in _AT[what][kind]:
                yield self._log.recent(kind).column(place)

    def keeps(self, kind: type[Event]) -> Callable[[Row], bool]:
        """Return whether a definition is used, as a function of its row."""
        if kind is FrameSeen:
            return self._keeps_frame()
        if kind is SourceLineRead:
            return self._keeps_line()
        names = field_names(kind)
        if kind is ParameterSeen:
            tensor, module = names.index("tensor_id"), names.index("module_id")
            return lambda row: row[tensor] in self.tensors and row[module] in self.modules
        ids, name = {
            TensorSeen: (self.tensors, "tensor_id"),
            ModuleSeen: (self.modules, "module_id"),
            HookRegistered: (self.hooks, "hook_id"),
            StackSeen: (self.stacks, "stack_id"),
        }[kind]
        place = names.index(name)
        return lambda row: row[place] in ids

    def _keeps_frame(self) -> Callable[[Row], bool]:
        stack = field_names(StackSeen).index("stack_id")
        rows = (row for row in self._log.recent(StackSeen).rows() if row[stack] in self.stacks)
        frames = set(chain.from_iterable(row[_FRAMES] for row in rows))
        place = field_names(FrameSeen).index("frame_id")
        return lambda row: row[place] in frames

    def _keeps_line(self) -> Callable[[Row], bool]:
        """Keep the newest reading of each line."""
        names = field_names(SourceLineRead)
        filename, lineno = names.index("filename"), names.index("lineno")
        rows = self._log.recent(SourceLineRead).rows()
        newest = {(row[filename], row[lineno]): row[0] for row in rows}
        return lambda row: newest[row[filename], row[lineno]] == row[0]
