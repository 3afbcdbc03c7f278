"""Conditions of ``record(break_on=...)``: which events open the debugger."""

from __future__ import annotations

import re
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    import torch

Kind: TypeAlias = Literal["write", "op", "line", "module", "node", "not-finite"]
"""The fact that is compared with an event: a written tensor, an operator, a line …"""

FORMS: Final = (
    "write:NAME", "op:NAME", "line:FILE:NUMBER", "module:NAME", "node:NAME", "not-finite",
)  # fmt: skip
"""The conditions as text; ``#N`` at the end of one is its Nth match only."""

_FORM: Final = re.compile(
    r"(?P<kind>write|op|module|node):(?P<name>[^#]+)|line:(?P<file>[^#]+):(?P<number>\d+)|not-finite"
)
_COUNT: Final = re.compile(r"#([1-9]\d*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCondition:
    """A condition under which a recording opens the debugger; ``watch`` returns one.

    Attributes:
        kind: what is compared with each event.
        text: the condition as text, for messages.
        name: of the operator, module or node, where ``*`` matches any characters; or of the
            parameter or buffer that is written.
        tensor: the tensor that is written, instead of its name.
        filename: the file of the line; the end of its path is enough.
        lineno: the number of the line, from 1.
        source: the text of the line, if it is known.
        phase: of the operator: "forward", "backward", "recompute"; "" is any.
        step: the training step, from 0; None is any.
        note: added to the message at a stop.
        count: only this match, from 1, counted in the step if there is one; None is every match.

    Example:
        >>> autogradviz.watch(x).kind
        'write'
    """

    kind: Kind
    text: str
    name: str = ""
    tensor: weakref.ref[torch.Tensor] | None = None
    filename: str = ""
    lineno: int = 0
    source: str = ""
    phase: str = ""
    step: int | None = None
    note: str = ""
    count: int | None = None


def watch(target: torch.Tensor | str) -> StopCondition:
    """Return a condition for ``record(break_on=...)``: something writes to a tensor.

    Args:
        target: a tensor, or the name of a parameter or buffer of the recorded model. A write to
            any view of the same memory matches.

    Raises:
        TypeError: if ``target`` is neither.

    Example:
        >>> autogradviz.watch("down.weight").text
        'write:down.weight'
    """
    if isinstance(target, str):
        return StopCondition(kind="write", text=f"write:{target}", name=target)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(target, torch.Tensor):
        message = f"watch() takes a tensor or the name of one, not {type(target).__name__}"
        raise TypeError(message)
    text = f"watch(tensor of shape {tuple(target.shape)})"
    return StopCondition(kind="write", text=text, tensor=weakref.ref(target))


def parse_condition(text: str) -> StopCondition:
    """Return the condition that a text describes; a text without a colon names a parameter.

    Raises:
        ValueError: if it describes none.
    """
    found_count = _COUNT.search(text)
    count = None if found_count is None else int(found_count[1])
    body = text if found_count is None else text[: found_count.start()]
    found = _FORM.fullmatch(body)
    if found is None:
        if body and not re.search(r"[:#\s]", body):
            return StopCondition(kind="write", text=text, name=body, count=count)
        message = f"{text!r} is no condition to stop on; use one of {', '.join(FORMS)}"
        raise ValueError(message)
    if found["file"] is not None:
        return StopCondition(
            kind="line",
            text=text,
            filename=found["file"],
            lineno=int(found["number"]),
            count=count,
        )
    if found["kind"] is None:
        return StopCondition(kind="not-finite", text=text, count=count or 1)
    kinds: dict[str, Kind] = {"write": "write", "op": "op", "module": "module", "node": "node"}
    return StopCondition(kind=kinds[found["kind"]], text=text, name=found["name"], count=count)


def is_of_file(path: str, filename: str) -> bool:
    """Return whether a path is a file, or ends with its name or relative path."""
    path, filename = path.replace("\\", "/"), filename.replace("\\", "/").removeprefix("./")
    return path == filename or path.endswith(f"/{filename}")
