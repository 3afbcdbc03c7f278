"""Display text for counts, module names, saved tensors and hooks."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, location_in_folder

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


def last_part(name: str) -> str:
    """Return the last part of a qualified name, numbers with what they count: "down.0.1"."""
    parts = name.split(".")
    named = max((at for at, part in enumerate(parts) if not part.isdigit()), default=0)
    return ".".join(parts[named:])


def range_label(first: str, last: str) -> str:
    """Return the label of a run of blocks: "h.0–11" for "h.0" and "h.11"."""
    prefix = first.rstrip("0123456789")
    if prefix == last.rstrip("0123456789"):
        return f"{first}–{last.removeprefix(prefix)}"
    return f"{first} – {last}"


@lru_cache(maxsize=4_096)
def block_prefix(path: str) -> str:
    """Return a module path up to its first number, else its first part.

    This is the block that a module belongs to: "h.3" for "h.3.attn.c_proj".
    """
    parts = path.split(".")
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: numbered + 1])


def merge_numbered_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each name the pattern of all names that differ from it only in numbers.

    The pattern is "blocks.*" for "blocks.0" and "blocks.1", "0–8" for the numbers 0 to 8, and the
    name itself if it is the only one. A number that all names share stays: "GPT2.h.*".
    """
    similar: dict[str, dict[str, None]] = {}
    for name in names:
        similar.setdefault(re.sub(r"\d+", "*", name), {})[name] = None
    merged: dict[str, str] = {}
    for pattern, members in similar.items():
        if pattern == "*" and len(members) > 1:
            joint = f"{min(members, key=int)}–{max(members, key=int)}"
        else:
            parts = zip(*(re.split(r"(\d+)", name) for name in members), strict=True)
            joint = "".join(part[0] if len(set(part)) == 1 else "*" for part in parts)
        merged.update(dict.fromkeys(members, joint))
    return merged


def saved_tensor_label(
    slot: str, version: int | None, seen_version: int | None, nbytes: int
) -> tuple[str, str, str]:
    """Return the text of a saved-tensor badge in three parts: slot, version (bold), bytes."""
    versions = "" if version is None else f"v{version}"
    if version is not None and seen_version is not None and seen_version != version:
        versions = f"v{version} → v{seen_version}"
    separator = " · " if slot or versions else ""
    return f"{slot} " if versions and slot else slot, versions, f"{separator}{format_bytes(nbytes)}"


def hook_description(hook: Hook) -> str:
    """Return one line: kind and name of a hook, where it was registered, and its runs."""
    parts = [_HOOK_KINDS[hook.kind]]
    if hook.kind != "retain_grad":
        parts[0] += f" {hook.name}"
    if hook.location is not None:
        parts.append(location_in_folder(hook.location))
    elif hook.early:
        parts.append("registered before the recording")
    if hook.kind != "retain_grad":
        parts.append(f"ran {hook.runs}×")
    if hook.changed:
        parts.append("changed the gradient")
    if hook.failed:
        parts.append("raised")
    return " · ".join(parts)
