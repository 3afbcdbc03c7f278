"""Numbers and names as they stand in pictures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.types import Hook, SourceLocation
    from autogradviz.events import HookKind

_HOOK_KINDS: Final[dict[HookKind, str]] = {
    "tensor": "tensor hook",
    "retain_grad": "retain_grad()",
    "post_accumulate_grad": "post-accumulate-grad hook",
    "multi_grad": "multi-grad hook",
    "node": "node hook",
    "node_pre": "node pre-hook",
    "node_post": "node hook",
    "module_backward_pre": "module full backward pre-hook",
    "module_backward": "module full backward hook",
}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def format_bytes(nbytes: int) -> str:
    """Return a byte count in decimal units: "48 B", "16 kB", "3.1 MB"."""
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:  # noqa: PLR2004  would read "1000"
        value, unit = value / 1000, unit + 1
    small = value < 9.95 and unit > 0  # noqa: PLR2004  would read "10.0"
    return f"{value:.1f} {_UNITS[unit]}" if small else f"{value:.0f} {_UNITS[unit]}"


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape as "4×12×256", and "scalar" of a tensor without dimensions."""
    return "×".join(map(str, shape)) if shape else "scalar"


def plural(count: int, word: str) -> str:
    """Return "1 node", "1,234 nodes"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def last_part(name: str) -> str:
    """Return the last part of a qualified name; of a numbered one the last two ("h.0")."""
    parts = name.split(".")
    if len(parts) > 1 and parts[-1].isdigit():
        return ".".join(parts[-2:])
    return parts[-1]


def block_prefix(path: str) -> str:
    """Return the part of a module's path that names a block: "h.3" of "h.3.attn.c_proj".

    That is up to its first number, else its first part.
    """
    parts = path.split(".")
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: numbered + 1])


def merge_numbered_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each name what stands for it and those that differ in numbers only.

    That is "blocks.*" for "blocks.0" and "blocks.1", "0–8" for nine numbers, and a name alone.
    A number that all of them have stays: "GPT2.h.*".
    """
    alike: dict[str, dict[str, None]] = {}
    for name in names:
        alike.setdefault(re.sub(r"\d+", "*", name), {})[name] = None
    words: dict[str, str] = {}
    for pattern, own in alike.items():
        if pattern == "*" and len(own) > 1:
            joint = f"{min(own, key=int)}–{max(own, key=int)}"
        else:
            parts = zip(*(re.split(r"(\d+)", name) for name in own), strict=True)
            joint = "".join(same[0] if len(set(same)) == 1 else "*" for same in parts)
        words.update(dict.fromkeys(own, joint))
    return words


def short_path(filename: str) -> str:
    """Return the last two parts of a path: enough to know the file."""
    return "/".join(filename.replace("\\", "/").split("/")[-2:])


def short_place(location: SourceLocation) -> str:
    """Return a line of source with as much of its path as tells the file: "model/gpt.py:31"."""
    return f"{short_path(location.place)}:{location.lineno}"


def display_op_name(name: str) -> str:
    """Return an op's name without the marks of its implementation: "layer_norm", "softmax"."""
    return name.strip("_").removeprefix("native_").removesuffix("_forward") + (
        "_" if name.endswith("_") else ""
    )


def chip_words(
    slot: str, version: int | None, seen_version: int | None, nbytes: int
) -> tuple[str, str, str]:
    """Return what a chip says: slot, version (bold), bytes."""
    words = "" if version is None else f"v{version}"
    if version is not None and seen_version is not None and seen_version != version:
        words = f"v{version} → v{seen_version}"
    separator = " · " if slot or words else ""
    return f"{slot} " if words and slot else slot, words, f"{separator}{format_bytes(nbytes)}"


def hook_words(hook: Hook) -> str:
    """Return what a hook is, where it was registered and what it did, in one line."""
    words = [_HOOK_KINDS[hook.kind]]
    if hook.kind != "retain_grad":
        words[0] += f" {hook.name}"
    if hook.location is not None:
        words.append(short_place(hook.location))
    elif hook.early:
        words.append("registered before the recording")
    if hook.kind != "retain_grad":
        words.append(f"ran {hook.runs}×")
    if hook.changed:
        words.append("changed the gradient")
    if hook.failed:
        words.append("raised")
    return " · ".join(words)
