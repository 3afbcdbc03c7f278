"""The order of a device's streams: events that are recorded and waited for."""

from __future__ import annotations

import weakref
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import StreamAction, StreamsOrdered
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import (
    patched,
    patched_in_all_modules,
    patched_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.session import Session


# Methods of ``torch.Stream`` and ``torch.Event`` are observed, and those of the classes of a device
# that are written in Python and replace them. What C++ orders by itself is not seen: PyTorch's
# engine orders the streams of a backward.


_After: TypeAlias = "Callable[[Any, Any, Any], object]"
"""Called with the object of a method, its argument or None, and its result."""

_OF_EVENTS: Final = ("record", "wait", "synchronize", "query")
_OF_STREAMS: Final = ("record_event", "wait_event", "wait_stream", "synchronize", "query")


class StreamOrder:
    """Records what orders streams."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._emit = session.emitter(StreamsOrdered)
        self._local = session.threads.local
        self._recorded: dict[int, tuple[Any, int]] = {}  # event, by its address: where recorded
        self.of_events: dict[str, _After] = {
            "record": lambda event, stream, _: self._record(event, stream),
            "wait": lambda event, stream, _: self._wait(event, stream),
            "synchronize": lambda event, _, __: self._synchronize_event(event),
            "query": lambda event, _, done: self._synchronize_event(event) if done else None,
        }
        self.of_streams: dict[str, _After] = {
            "record_event": lambda stream, _, event: self._record(event, stream),
            "wait_event": lambda stream, event, _: self._wait(event, stream),
            "wait_stream": lambda stream, other, _: self._wait_stream(stream, other),
            "synchronize": lambda stream, _, __: self._add("synchronize", stream),
            "query": lambda stream, _, done: self._add("synchronize", stream) if done else None,
        }

    def _add(
        self, action: StreamAction, stream: Any, other: int | None = None, seq: int | None = None
    ) -> int:
        device = "" if stream is None else str(stream.device)
        number = None if stream is None else stream.stream_id
        thread = self._local.state.number
        return self._emit(thread, self._session.stack_id(), action, device, number, other, seq)

    def _record(self, event: Any, stream: Any) -> None:
        stream = torch.accelerator.current_stream() if stream is None else stream
        key, table = id(event), self._recorded
        gone = weakref.ref(event, partial(table.pop, key))  # runs only C
        table[key] = gone, self._add("record", stream)

    def _seq_of(self, event: Any) -> int | None:
        found = self._recorded.get(id(event))
        return None if found is None or found[0]() is not event else found[1]

    def _wait(self, event: Any, stream: Any) -> None:
        stream = torch.accelerator.current_stream() if stream is None else stream
        self._add("wait", stream, seq=self._seq_of(event))

    def _wait_stream(self, stream: Any, other: Any) -> None:
        self._add("wait_stream", stream, other.stream_id)

    def _synchronize_event(self, event: Any) -> None:
        seq = self._seq_of(event)
        if seq is not None:
            self._add("synchronize", None, seq=seq)

    def synchronized_device(self, *_: Any) -> None:
        """Record that the host has waited for a device: for all of its streams."""
        self._add("synchronize", None)


@contextmanager
def observe_stream_order(session: Session) -> Iterator[None]:
    """Record what orders streams while the context is open, if there is an accelerator."""
    if not torch.accelerator.is_available():
        yield
        return
    order = StreamOrder(session)
    current = torch.accelerator.current_accelerator()
    module = None if current is None else torch.get_device_module(current)
    with ExitStack() as stack:
        stack.enter_context(patched_type(
            torch.Event, **_wrapped(session, vars(torch.Event), order.of_events, _OF_EVENTS)
        ))  # fmt: skip
        stack.enter_context(patched_type(
            torch.Stream, **_wrapped(session, vars(torch.Stream), order.of_streams, _OF_STREAMS)
        ))  # fmt: skip
        for name, table in (("Event", order.of_events), ("Stream", order.of_streams)):
            kind = getattr(module, name, None)
            if isinstance(kind, type) and kind not in (torch.Event, torch.Stream):
                # Their other methods call those of events.
                own = [each for each in ("record", "wait", "synchronize", "query") if each in table]
                stack.enter_context(patched(kind, **_wrapped(session, vars(kind), table, own)))
        for function in {torch.accelerator.synchronize, getattr(module, "synchronize", None)}:
            if function is not None:
                ours = _after(session, function, order.synchronized_device)
                stack.enter_context(patched_in_all_modules("synchronize", function, ours))
        yield


def _wrapped(
    session: Session, members: Any, table: dict[str, _After], names: Any
) -> dict[str, Any]:
    """Return functions for those of some methods that a type has itself."""
    return {name: _after(session, members[name], table[name]) for name in names if name in members}


def _after(session: Session, original: Any, after: _After) -> Any:
    """Return a function that calls the original and then records it."""
    ref = session.ref(session)

    @skip_frame
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        target = ref.target
        if target is not None:
            given = [*args[1:], *kwargs.values()]
            first = args[0] if args else None
            target.guarded("streams", after, first, given[0] if given else None, result)
        return result

    return call
