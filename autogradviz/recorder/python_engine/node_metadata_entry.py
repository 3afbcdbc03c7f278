"""The recorder's entry in the metadata of a node: its id and its saved tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from autogradviz.recorder.own_hook import OwnHook
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive

if TYPE_CHECKING:
    from autogradviz.recorder.python_engine.saved_tensors import NodeSlots
    from autogradviz.recorder.session import SessionRef

OnStart: TypeAlias = Callable[["NodeTag", Any], None]
"""Called with the tag and the gradients of a node that is about to run."""


class NodeTag(OwnHook):
    """The entry on one node; it dies with the node.

    It is also the hook that runs before the node: one object is cheaper than two.
    """

    __slots__ = (
        "depth",
        "height",
        "hooked_by",
        "leaf",
        "mode_sensitive",
        "node_id",
        "on_start",
        "release",
        "saved",
        "seen",
        "walk",
    )

    def __init__(self, node_id: int, on_start: SessionRef[OnStart]) -> None:
        self.node_id = node_id
        self.on_start = on_start
        self.saved: NodeSlots | None = None
        self.release: object = None  # records the release of these when the node dies
        self.seen = -1  # the last event that describes it
        self.walk = 0  # the last walk that reached it
        self.depth = 0  # longest touched chain above, in that walk
        self.height = 1  # longest touched chain below
        self.mode_sensitive = False  # see NOTE [ Formulas that ask whether a mode is active ]
        self.hooked_by: int | None = None  # the last backward that hooked it
        self.leaf: int | None = None  # the tensor that an AccumulateGrad accumulates into

    @skip_dynamo_recursive
    def __call__(self, gradients: Any) -> None:
        """Record that the node is about to run."""
        on_start = self.on_start.target
        if on_start is not None:
            on_start(self, gradients)
