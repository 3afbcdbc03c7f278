"""A change of a program that a finding suggests, for programs to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation

ChangeKind: TypeAlias = Literal[
    "release", "drop retain_graph", "zero_grad", "no_grad", "backward", "foreach", "chunks",
    "checkpoint", "micro_batches", "offload", "optimizer",
]  # fmt: skip
"""The kind of a change:

- ``release``: keep the tensor of this line without its graph, or not at all.
- ``drop retain_graph``: call this ``backward`` without ``retain_graph=True``.
- ``zero_grad``: free the gradients before the forward, ``zero_grad(set_to_none=True)``.
- ``no_grad``: call the model on this line under ``torch.no_grad()``.
- ``backward``: call ``backward`` after each call of the model on this line.
- ``foreach``: give the optimizer ``foreach=False``.
- ``chunks``: compute what begins at this line in ``count`` parts, each checkpointed.
- ``checkpoint``: checkpoint each of the modules that match ``target``.
- ``micro_batches``: split the batch into ``count`` parts, with a backward for each.
- ``offload``: call the model under ``torch.autograd.graph.save_on_cpu()``.
- ``optimizer``: use the optimizer ``target``, whose state is smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the program, and its predicted effect.

    Attributes:
        kind: the kind of change.
        nbytes: bytes by which the memory that the step needs is predicted to fall.
        is_enough: whether that is predicted to make the step fit.
        target: the modules, as a pattern of their names, or the optimizer; "" for neither.
        count: the number of parts; None for other kinds.
        location: the line to change, None if it is not known.

    Example:
        >>> from autogradviz import Change
        >>> Change(kind="checkpoint", nbytes=2_000_000, is_enough=True, target="h.*").target
        'h.*'
    """

    kind: ChangeKind
    nbytes: int
    is_enough: bool
    target: str = ""
    count: int | None = None
    location: SourceLocation | None = None
