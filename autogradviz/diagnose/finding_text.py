"""Text of findings: locations, source excerpts, shapes, lists of names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape, join_repeated
from autogradviz.analysis.formatting import short_location as short_location  # noqa: PLC0414

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis import Op, Region, SavedTensor, SourceLocation, Tensor

MAX_LINES: Final = 30
NOT_RECORDED: Final = "    (on a line that was not recorded)"
_NAMES: Final = 5  # in one list


CONTROLS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)], "�")
del CONTROLS[ord("\n")]
"""Control characters, which terminals interpret, and surrogates, which they cannot print."""


def quote_source(location: SourceLocation | None) -> str:
    """Return a source line below its file, line number and function; "" for None."""
    if location is None:
        return ""
    text = location.text or "(source not available)"
    return f"    {place_text(location)}\n        {text}"


def place_text(location: SourceLocation) -> str:
    """Return "train.py:31, in Gate.forward"; the path is relative to the current directory."""
    return f"{line_text(location)}, in {location.function or '<module>'}"


def line_text(location: SourceLocation) -> str:
    """Return "train.py:31"; the path is relative to the current directory if it is below it."""
    if location.cell is not None:
        return str(location)
    return f"{_relative(location.filename)}:{location.lineno}"


def excerpts(lines: Iterable[str | SourceLocation | None]) -> list[str]:
    """Return sentences and source lines as text, each once.

    A sentence that announces lines, with a colon, is left out if none of them is left.
    """
    texts = (each if isinstance(each, str) else quote_source(each) for each in lines)
    parts = list(dict.fromkeys(text for text in texts if text))
    following = [*parts, ""][1:]
    return [
        part
        for part, after in zip(parts, following, strict=True)
        if not part.endswith(":") or "\n" in part or after.startswith(" ")
    ]


def _relative(filename: str) -> str:
    """Return a path relative to the current directory if possible; terminals can open it."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename


def describe_tensor(tensor: Tensor) -> str:
    """Return "float32 4×12×256"."""
    return f"{tensor.dtype} {format_shape(tensor.shape)}"


def line_number_or_place(location: SourceLocation, other: SourceLocation | None) -> str:
    """Return "line 16", or "model.py:16" if another line that was named is in another file."""
    same = other is not None and other.filename == location.filename
    return f"line {location.lineno}" if same else short_location(location)


def slot_name(saved: SavedTensor, node_name: str | None = None) -> str:
    """Return "BmmBackward0.mat2", or the parts of it that are known."""
    owner = node_name or (saved.op.name if saved.op is not None else "a node")
    return f"{owner}.{saved.slot}" if saved.slot else f"a tensor that {owner} saved"


def describe_op(op: Op | None) -> str:
    """Return "cat → float32 2×128, attention.py:49", or "nothing"."""
    if op is None:
        return "nothing"
    results = join_repeated(describe_tensor(tensor) for tensor in op.outputs)
    arrow = f" → {results}" if results else ""
    return f"{op.name}{arrow}, {short_location(op.location)}"


def in_module(module: str) -> str:
    """Return " in h.0.attn", " in module 1" for a name of numbers, or "" for the model itself."""
    is_number = module[:1].isdigit()
    return f" in {'module ' if is_number else ''}{module}" if module else ""


def describe_region(region: Region) -> str:
    """Return "The checkpointed region Block.forward in h.0 (gpt.py:49)"."""
    place = short_location(region.location)
    return f"The checkpointed region {region.function}{in_module(region.module)} ({place})"


def paragraphs(parts: Sequence[str]) -> str:
    """Join paragraphs that are not empty, and cut them off at ``MAX_LINES`` lines."""
    lines = "\n".join(part for part in parts if part).splitlines()
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], "…"]
    return "\n".join(lines)


def explain(*parts: str | SourceLocation | None) -> str:
    """Return sentences and source lines as the explanation of a finding."""
    return paragraphs([part if isinstance(part, str) else quote_source(part) for part in parts])


def join_names(names: Sequence[str]) -> str:
    """Return "a, b, c and 9 more"."""
    if len(names) <= _NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMES - 1])} and {len(names) - _NAMES + 1} more"
