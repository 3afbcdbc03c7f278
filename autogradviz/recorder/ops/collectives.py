"""Collectives, recorded before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz.events import CollectiveCalled
from autogradviz.recorder.torch_internals.distributed import name_of_group

if TYPE_CHECKING:
    from autogradviz.recorder.session import Session

_GROUP_ARGUMENTS: Final = ("process_group", "group_name")
_POINT_TO_POINT: Final = ("send", "recv", "p2p")


class Collective(NamedTuple):
    """The arguments of an op that communicates; positions are those in its schema."""

    group: int
    group_keyword: str
    async_op: int | None
    is_point_to_point: bool


def read_collective(schema: Any) -> Collective | None:
    """Return the arguments of an op that communicates, None for any other op."""
    names = [argument.name for argument in schema.arguments]
    group = next((name for name in _GROUP_ARGUMENTS if name in names), None)
    if group is None:
        return None
    plain = schema.name.rpartition("::")[2]
    return Collective(
        names.index(group),
        group,
        names.index("async_op") if "async_op" in names else None,
        any(part in plain for part in _POINT_TO_POINT),
    )


class Collectives:
    """Numbers the collectives of each process group."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers: dict[str, int] = {}

    def count(self, group_name: str) -> int:
        """Return the number of collectives that a process group has called."""
        return self._numbers.get(group_name, 0)

    def called(
        self,
        collective: Collective,
        op: str,
        args: Any,
        kwargs: Any,
        tensor_ids: tuple[int, ...],
    ) -> None:
        """Record a collective that is about to run."""
        position = collective.group
        group = args[position] if position < len(args) else kwargs.get(collective.group_keyword)
        name = name_of_group(group)
        number = None
        if not collective.is_point_to_point:
            number = self._numbers.get(name, 0)
            self._numbers[name] = number + 1
        is_async = None
        if collective.async_op is not None:
            given = collective.async_op < len(args)
            is_async = args[collective.async_op] if given else kwargs.get("async_op", True)
        self._session.emit(
            CollectiveCalled,
            op,
            name,
            number,
            tensor_ids,
            is_async,
            stack_id=self._session.stack_id(),
        )
