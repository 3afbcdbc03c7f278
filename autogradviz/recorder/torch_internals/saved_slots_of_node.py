"""The slots in which nodes keep saved tensors.

``node._saved_x`` unpacks: it runs hooks, and on a checkpointed region the forward.
``node._raw_saved_x`` is the slot itself; reading its ``data`` and ``unpack_hook`` runs nothing.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

_RAW: Final = "_raw_saved_"

Slots: TypeAlias = tuple[tuple[str, str], ...]
"""The slots of a type of nodes: attribute and label."""

_known: Final[WeakKeyDictionary[type, Slots]] = WeakKeyDictionary()


def slots_of(kind: type) -> Slots:
    """Return the slots of a type of nodes; looked up once a process."""
    slots = _known.get(kind)
    if slots is None:
        slots = _known[kind] = tuple(
            [(name, _label(name)) for name in dir(kind) if name.startswith(_RAW)]
        )
    return slots


def _label(attribute: str) -> str:
    """Return the name of a slot that users know."""
    label = attribute.removeprefix(_RAW)
    return "saved_tensors" if label == "tensors" else label  # of a custom Function
