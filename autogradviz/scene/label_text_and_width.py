"""Texts of a picture: how they are written, and how wide they are."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, format_shape, location_in_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Hook, Tensor
    from autogradviz.events import HookKind


# --- display text for counts, module names, saved tensors and hooks -------------------------------


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


_BACKWARD: Final = re.compile(r"Backward\d*$")


def last_part(name: str) -> str:
    """Return the last part of a qualified name, numbers with what they count: "down.0.1"."""
    parts = name.split(".")
    named = max((at for at, part in enumerate(parts) if not part.isdigit()), default=0)
    return ".".join(parts[named:])


def range_label(first: str, last: str) -> str:
    """Return the label of a run of blocks: "h.0–11" for "h.0" and "h.11".

    Only numbers have a range: of other names, those in between are unknown.
    """
    prefix = first.rstrip("0123456789")
    if prefix == last.rstrip("0123456789"):
        return f"{first}–{last.removeprefix(prefix)}"
    return f"{first} … {last}"


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


def split_name(name: str) -> tuple[str, str]:
    """Return the name of a node in two parts: what it computes, and "Backward0"."""
    stem = _BACKWARD.sub("", name) or name
    return stem, name[len(stem) :]


def same_name(op: str, node: str) -> bool:
    """Return whether the name of a node says which op it is: "addmm" and "AddmmBackward0"."""
    return op.replace("_", "").lower() == split_name(node)[0].replace("_", "").lower()


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


# --- text widths without a font, from average advances of character classes -----------------------
#
# The advances are those of a wide sans-serif font (DejaVu Sans, Verdana), so that text fits with
# some space to spare in narrower system fonts.


BADGE_FONT_SIZE: Final = 11.0  # pixels
MAX_NAME: Final = 48
"""Characters of an op or node name. Longer names are elided."""

_CLASSES: Final = (
    (0.28, "'ijlIJ"),
    (0.33, " ,.·/:;|\\f-"),
    (0.4, "()[]t!r"),
    (0.5, '"*_`–sz?'),
    (0.6, "cLFkvxyPTYaoe"),
    (0.64, "ESbdghnpqu0123456789${}"),
    (0.69, "KAVBRXZC"),
    (0.77, "UHNDG&"),
    (0.84, "OQw#+<=>^~×→±M"),
    (0.99, "%mW@"),
)
_ADVANCE: Final = {char: advance for advance, chars in _CLASSES for char in chars}
_OTHER: Final = 0.7
_WIDE: Final = 1.1  # ideographs, emoji
_BOLD: Final = 1.13


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = 12.0, *, bold: bool = False) -> float:
    """Return the width of one line of text in pixels, rounded up to a half.

    Args:
        text: the line.
        size: font size in pixels.
        bold: whether the font is semibold or bold.
    """
    ems = sum(_advance(char) for char in text)
    return -(-ems * size * (_BOLD if bold else 1.0) * 2 // 1) / 2


def _advance(char: str) -> float:
    advance = _ADVANCE.get(char)
    if advance is None:
        return _WIDE if unicodedata.east_asian_width(char) in "WF" else _OTHER
    return advance


def elide(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters. The middle of a longer text is left out."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


# --- the shape of a tensor in words, for a ``DTensor`` with what this rank holds of it ------------


def tensor_shape_text(analysis: Analysis, tensor: Tensor) -> str:
    """Return "4×12", or "16×8, local 8×8, Shard(dim=0) on tp=2" for a ``DTensor``.

    The local shape is that of the part on this rank. For each dimension of the device mesh follow
    the placement, and its name and size.
    """
    shape = format_shape(tensor.shape)
    seen = analysis.distributed_tensors.get(tensor.tensor_id)
    if seen is None:
        return shape
    parts = [shape, f"local {format_shape(analysis.tensors[seen.local_tensor_id].shape)}"]
    for dim, (placement, size) in enumerate(zip(seen.placements, seen.mesh_shape, strict=False)):
        name = seen.mesh_names[dim] if dim < len(seen.mesh_names) else f"mesh dim {dim}"
        parts.append(f"{placement} on {name}={size}")
    return ", ".join(parts)
