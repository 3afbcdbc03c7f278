"""Numbers and names as they stand in pictures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, short_location

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import Hook
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
        words.append(short_location(hook.location))
    elif hook.early:
        words.append("registered before the recording")
    if hook.kind != "retain_grad":
        words.append(f"ran {hook.runs}×")
    if hook.changed:
        words.append("changed the gradient")
    if hook.failed:
        words.append("raised")
    return " · ".join(words)
