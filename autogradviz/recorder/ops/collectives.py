"""Collectives, recorded before they run."""

from __future__ import annotations

import functools
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz.events import CollectiveCalled, CollectiveWaited
from autogradviz.recorder.torch_internals.distributed import (
    collective_methods,
    name_of_group,
    process_group_classes,
)
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


# --- waits for collectives: which one, and how long -----------------------------------------------
#
# A process group returns a ``Work`` for each collective that it starts. The number of the
# collective is remembered with a weak reference to that object, until the program waits for it.


class _Waits:
    """The collectives that have started and that the program may wait for."""

    def __init__(self, session: Session, count: Callable[[str], int]) -> None:
        self.session = session
        self._count = count
        self._works: dict[int, tuple[weakref.ref[Any], str, int | None]] = {}

    def next_number(self, group: Any) -> tuple[str, int]:
        """Return the name of a process group, and the number of its next collective."""
        name = name_of_group(group)
        return name, self._count(name)

    def started(self, work: Any, name: str, number: int) -> None:
        """Remember the collective of a ``Work``; sends and receives have no number."""
        known = number if self._count(name) > number else None
        key, works = id(work), self._works
        reference = weakref.ref(work, functools.partial(works.pop, key))
        works[key] = (reference, name, known)

    def waited(self, work: Any, began_ns: int, *, failed: bool) -> None:
        """Record that a wait has ended, if the collective was recorded."""
        found = self._works.get(id(work))
        if found is None or found[0]() is not work:
            return
        _, name, number = found
        self.session.emit(
            CollectiveWaited, name, number, self.session.time_ns() - began_ns, failed,
            stack_id=self.session.stack_id(),
        )  # fmt: skip


_open: _Waits | None = None
"""Those of the recording that is open."""


@contextmanager
def observe_waits(session: Session, count: Callable[[str], int]) -> Iterator[None]:
    """Record waits for collectives while the context is open.

    Args:
        session: the recording.
        count: returns how many collectives the group of a name has called.
    """
    global _open  # noqa: PLW0603 - one recording a process
    classes: Final = process_group_classes()
    if classes is None:
        yield
        return
    group, work = classes
    starts = {name: _wrapper(_starter, vars(group)[name]) for name in collective_methods()}
    wait = _wrapper(_waiter, vars(work)["wait"])
    _open = _Waits(session, count)
    try:
        with patched(group, **starts), patched(work, wait=wait):
            yield
    finally:
        _open = None


_wrappers: Final[dict[int, tuple[Any, Callable[..., Any]]]] = {}
"""By address of a method: the method, which keeps the address in use, and its wrapper."""


def _wrapper(make: Callable[[Any], Callable[..., Any]], original: Any) -> Callable[..., Any]:
    """Return the wrapper of a method. There are many, so they are made once in a process."""
    known = _wrappers.get(id(original))
    if known is None:
        known = _wrappers[id(original)] = original, make(original)
    return known[1]


def _starter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a process group that also remembers the collective it started."""

    @skip_frame
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        waits = _open
        if waits is None:
            return original(self, *args, **kwargs)
        guarded = waits.session.guarded
        before = guarded("collectives", waits.next_number, self)
        work = original(self, *args, **kwargs)
        if before is not None and work is not None:
            guarded("collectives", waits.started, work, *before)
        return work

    return functools.wraps(original)(start)


def _waiter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``Work.wait`` that also records the wait."""

    @skip_frame
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        waits = _open
        if waits is None:
            return original(self, *args, **kwargs)
        began_ns = waits.session.always_guarded("collectives", waits.session.time_ns) or 0
        failed = True
        try:
            result = original(self, *args, **kwargs)
            failed = False
        finally:
            waits.session.guarded("collectives", waits.waited, self, began_ns, failed=failed)
        return result

    return functools.wraps(original)(wait)
