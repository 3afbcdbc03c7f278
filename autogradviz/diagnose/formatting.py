"""Words that all findings share: locations, excerpts, sizes."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Op, Region, SavedTensor, SourceLocation, Tensor

MAX_LINES: Final = 30
NAMED: Final = 5  # names that fit a line


def short(location: SourceLocation | None) -> str:
    """Return "file.py:41", or words for an unknown line."""
    if location is None:
        return "an unknown line"
    return f"{PurePath(location.filename).name}:{location.lineno}"


def quoted(location: SourceLocation | None) -> str:
    """Return one source line, indented, with its place; "" where it is unknown."""
    if location is None:
        return ""
    text = location.text or "(source not available)"
    return (
        f"    {_near(location.filename)}:{location.lineno}, in {location.function}\n        {text}"
    )


def _near(filename: str) -> str:
    """Return a path from here where the file lies below, as a terminal can open it."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename


def shape(tensor: Tensor) -> str:
    """Return "float32 4×12×256"."""
    return f"{tensor.dtype} {format_shape(tensor.shape)}"


def slot(saved: SavedTensor, node_name: str | None = None) -> str:
    """Return "BmmBackward0.mat2", as much of it as is known."""
    owner = node_name or (saved.op.name if saved.op is not None else "a node")
    return f"{owner}.{saved.slot}" if saved.slot else f"a tensor that {owner} saved"


def op_words(op: Op | None) -> str:
    """Return "cat → float32 2×128, attention.py:49", or "nothing"."""
    if op is None:
        return "nothing"
    results = ", ".join(shape(tensor) for tensor in op.outputs)
    arrow = f" → {results}" if results else ""
    return f"{op.name}{arrow}, {short(op.location)}"


def where(module: str) -> str:
    """Return " in h.0.attn", or "" for the model itself."""
    return f" in {module}" if module else ""


def region_words(region: Region) -> str:
    """Return "The checkpointed region Block.forward in h.0 (gpt.py:49)"."""
    place = short(region.location)
    return f"The checkpointed region {region.function}{where(region.module)} ({place})"


def fit(parts: Sequence[str]) -> str:
    """Join the parts that say something, and keep within the line limit."""
    lines = "\n".join(part for part in parts if part).splitlines()
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], "…"]
    return "\n".join(lines)


def listed(names: Sequence[str]) -> str:
    """Return "a, b, c and 9 more"."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: NAMED - 1])} and {len(names) - NAMED + 1} more"
