"""What the recorder keeps on a node: its number, and what it found in the node's slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from autogradviz.recorder.engine.hooks import RecorderHook
from autogradviz.recorder.torch_internals.dynamo import hidden
from autogradviz.signals import interrupt_again

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import RecorderRef


Slot: TypeAlias = tuple[int, str, int | None, int | None, int | None]
"""One saved tensor of one node: save, attribute, place in it, version, fingerprint.

The attribute is "" for a save that went through hooks; a place is one in a slot that holds a list.
A plain tuple, since the garbage collector never lets go of a named one.
"""


class Kept:
    """What a node keeps in its slots; what dies with the node is told of as released.

    It stands apart from the tag, so that Python calls nothing when one of the many nodes dies that
    keep nothing.
    """

    __slots__ = ("gate", "slots")

    def __init__(self, gate: RecorderRef, slots: tuple[Slot, ...]) -> None:
        self.gate = gate
        self.slots = slots

    def __del__(self) -> None:
        if not self.slots:
            return
        try:
            recorder = self.gate.recorder
            if recorder is not None:
                recorder.guarded("release", recorder.slots.release, self)
        except BaseException as error:  # noqa: BLE001 - Python would drop it here
            interrupt_again(error)


class NodeTag(RecorderHook):
    """Our number on a node, kept in its ``metadata``; it dies with the node.

    It is also the hook before the node: one object is cheaper than two.
    """

    __slots__ = (
        "depth",
        "gate",
        "height",
        "hooked_by",
        "leaf",
        "mode_sensitive",
        "node_id",
        "saved",
        "seen",
        "walk",
    )

    def __init__(self, node_id: int, gate: RecorderRef) -> None:
        self.node_id = node_id
        self.gate = gate
        self.saved: Kept | None = None
        self.seen = -1  # the event that told of it
        self.walk = 0
        self.depth = 0  # longest touched chain above, in the current walk
        self.height = 1  # longest touched chain below
        self.mode_sensitive = False  # see NOTE [ Formulas that ask whether a mode is active ]
        self.hooked_by: int | None = None  # the last backward that put a hook on it
        self.leaf: int | None = None  # the tensor that an AccumulateGrad accumulates into

    @hidden
    def __call__(self, gradients: Any) -> None:
        """Tell that the node is about to run."""
        recorder = self.gate.recorder
        if recorder is not None:
            recorder.backwards.on_node_start(self, gradients)
