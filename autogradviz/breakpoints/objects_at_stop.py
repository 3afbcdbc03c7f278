"""``Stop``: the live objects at the moment at which a recording opened the debugger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


@dataclass(frozen=True, slots=True, repr=False)
class LiveSave:
    """A tensor that a node of the live graph keeps for backward.

    Attributes:
        node: name of the node, "ExpBackward0".
        slot: the slot of the node, "result".
        value: the tensor; what the pack hook returned, if hooks packed it.
        saved_version: the version of the tensor when it was saved, None if unknown.
        version: its version now; PyTorch increments it when an operator that writes has returned.

    Example:
        >>> autogradviz.LiveSave("ExpBackward0", "result", torch.ones(3), 0, 1)
        ExpBackward0.result (3,): version 0 when saved, 1 now
    """

    node: str
    slot: str
    value: Any
    saved_version: int | None
    version: int | None

    def __repr__(self) -> str:
        was = "?" if self.saved_version is None else self.saved_version
        shape = tuple(getattr(self.value, "shape", ()))
        return f"{self.node}.{self.slot} {shape}: version {was} when saved, {self.version} now"


@dataclass(kw_only=True)
class Stop:
    """The live objects at a stop; in the debugger, the variable ``stopped``.

    The tensors are those of the program and not copies. They are released when the program
    continues.

    Attributes:
        reason: why the program stopped.
        place: the line of the user's frame, "train.py:12".
        seq: the number of the event that matched.
        op: the operator, ``"aten.add_.Tensor"``; "" if none was called.
        args: its positional arguments, those of the module, or the gradients that the node
            receives.
        kwargs: its keyword arguments.
        result: what it returned.
        error: the exception that it raised.
        module: the module that is entered.
        node: the autograd node that is about to run.
        versions: for each tensor among the arguments of the operator, in their order, its version
            before and after the call.

    Example:
        >>> autogradviz.Stop(reason="it was called", place="train.py:3", seq=7, read_saved=list)
        train.py:3: it was called
    """

    reason: str
    place: str
    seq: int
    op: str = ""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: BaseException | None = None
    module: torch.nn.Module | None = None
    node: Any = None
    versions: tuple[tuple[int, int], ...] = ()
    read_saved: Callable[[], list[LiveSave]] = field(repr=False)

    @property
    def saved(self) -> list[LiveSave]:
        """The tensors of the live graph, saved for backward, that share memory with ``args``.

        At a node, all tensors that it saved. Nothing is unpacked: of a tensor packed by hooks,
        this is what the pack hook returned.
        """
        return self.read_saved()

    def __repr__(self) -> str:
        lines = [f"{self.place}: {self.reason}"]
        for name in ("op", "args", "kwargs", "result", "error", "module", "node"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (str, tuple, dict)) and not value):
                lines.append(f"  {name:<9}{_brief(value)}")
        if self.versions:
            changes = (f"{a}" if a == b else f"{a} → {b}" for a, b in self.versions)
            lines.append(f"  versions {', '.join(changes)}")
        lines += [f"  saved    {each}" for each in self.saved]
        return "\n".join(lines)


def _brief(value: Any) -> str:
    """Return a value as one line; a tensor is its dtype and shape."""
    if isinstance(value, (tuple, list)):
        text = ", ".join(map(_brief, value))
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_brief(item)}" for key, item in value.items())
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}{list(value.shape)}"
    text = str(value) if isinstance(value, str) else repr(value)
    return text.splitlines()[0] if text else text
