"""Event emission: assign a sequence number and a timestamp, append a row to the log.

One function for each kind of event does all of it in one call. It is generated from the fields of
the kind, since building a row out of parts costs half as much again.

NOTE [ Cost of an event ]
Recording is Python code. A call of a Python function costs as much as reading three attributes of a
tensor, and each new object is paid for again in garbage collection. Therefore:

- A table gets one emit function per event type that it emits often (``Session.emitter``). The
  function is compiled from the fields of the type (``recorder/event_writer.py``); assembling a row
  from parts costs half as much again.
- Operators and new tensors are the most frequent events. ``dispatch_mode.py`` and
  ``tensor_ids.py`` in ``recorder/python_engine/`` append their rows themselves.
- Functions called for every op take no keyword-only arguments, because Python does not inline such
  calls.
- Tensors, slots and nodes are queried with as few calls as possible: an attribute of a tensor costs
  as much as 25 bytecode instructions, a ``with`` block as much as three attributes.
- Most operators take and return plain tensors. The dispatch mode handles these without lists, extra
  calls or disabling function overrides, which costs as much as four attributes. The others go
  through ``recorder/python_engine/op_inputs_and_outputs.py``.
- A node's tag is itself the hook before the node; removing it is one ``dict.pop``. Only objects for
  nodes with slots have a finalizer, because most nodes save nothing.
- Stacks are walked from an op up to the innermost module call or backward, whose stack is known
  (``StackTable.mark``). Line numbers are computed once per distinct stack.
- The log row of an op is where versions and fingerprints for its node are read later.
- Tensors of the same shape and dtype share one description. Storages are flat arrays of integers.
  The first tensor of a storage, usually its only one, is found by the storage alone.
- Opening a recording searches all modules only if PyTorch's functions are bound elsewhere than last
  time. ``nn.Module.__setattr__`` is replaced when the first region is entered, because changing a
  special method invalidates every subclass.
- The garbage collector is paused while a graph is walked; otherwise long-lived objects of the
  recorder would advance full collections.
- Per-node and per-tensor state is kept in plain tuples of numbers and strings where possible,
  because the garbage collector stops tracking them at its first visit. It keeps tracking named
  tuples, lists and sizes.

``make bench`` prints how the rest divides among graph, operators and stacks. In a checkpointed
step, most of it is recording packs and unpacks (``recorder/saved_tensors/hooks.py``; for
checkpoint's hooks the native engine does it in C++, ``recorder/native/checkpoint_hooks.h``) and
reading Python state, three times per region.

- A walk over state is not repeated in the next step
  (``recorder/checkpoint/state_walk_snapshot.py``): if each value has the same parts as in one of
  the last walks from that function, only tensors and other values that change are read. A region
  whose state did not change keeps one dict of readings, which its recomputation compares by
  identity. Of installed packages, only code is read that a region can run
  (``recorder/checkpoint/inspect_user_code.py``).
- The state of a region is dropped when the object dies that holds what its recomputation needs.
"""

from __future__ import annotations

import itertools
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import Log
    from autogradviz.events import Event

_TEMPLATE = """
def make(append, number, sequence, time_ns):
    def emit({fields}):
        sequence.newest = seq = number()
        if seq >= sequence.due:
            sequence.on_due(seq)
        append((seq, time_ns(thread), {fields}))
        return seq
    return emit
"""


class EventSequence:
    """Numbers the events of a recording, and calls its retention policy when many were added."""

    __slots__ = ("due", "newest", "number", "on_due", "time_ns")

    def __init__(
        self,
        time_ns: Callable[[int], int],
        number: Callable[[], int] | None = None,
        on_due: Callable[[int], None] | None = None,
    ) -> None:
        """Begin at 0.

        Args:
            time_ns: returns the time of an event of a thread.
            number: returns the next number, if C++ numbers events too.
            on_due: called with a number from ``due`` on, before the event is appended.
        """
        self.time_ns = time_ns
        self.number: Callable[[], int] = number or itertools.count().__next__
        self.newest = -1
        self.due = sys.maxsize
        self.on_due: Callable[[int], None] = on_due or _ignore

    def set_due(self, seq: int) -> None:
        """Call ``on_due`` for each event from a number on."""
        self.due = seq

    def next(self) -> int:
        """Return the number of the event that is about to be appended."""
        self.newest = seq = self.number()
        if seq >= self.due:
            self.on_due(seq)
        return seq

    def emitter(self, log: Log, kind: type[Event]) -> Callable[..., int]:
        """Return the function that appends one event of a kind to a log and returns its number.

        It takes the thread, the stack and the event's own fields, in their order.
        """
        try:
            make = _maker(field_names(kind)[2:])
        except Exception:  # noqa: BLE001 - an audit hook of the program refuses to compile
            make = _make_slow
        return make(log.appender(kind), self.number, self, self.time_ns)


def _ignore(_seq: int) -> None:
    """Do nothing: no retention policy was set."""


def _make_slow(
    append: Any, number: Callable[[], int], sequence: EventSequence, time_ns: Callable[[int], int]
) -> Callable[..., int]:
    """Return the function that ``_TEMPLATE`` defines, for any fields."""

    def emit(thread: int, *others: Any) -> int:
        sequence.newest = seq = number()
        if seq >= sequence.due:
            sequence.on_due(seq)
        append((seq, time_ns(thread), thread, *others))
        return seq

    return emit


@cache
def _maker(fields: tuple[str, ...]) -> Callable[..., Callable[..., int]]:
    scope: dict[str, Any] = {}
    text = _TEMPLATE.format(fields=", ".join(fields))
    exec(text, scope)  # noqa: S102 - it holds the class's own field names only
    return cast("Callable[..., Callable[..., int]]", scope["make"])
