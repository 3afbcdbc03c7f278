"""The training text: the source of Python's standard library, which every machine has."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

CHARACTERS: Final = 200_000


def read_text(characters: int = CHARACTERS) -> Tensor:
    """Return ASCII characters of the standard library's source.

    Args:
        characters: the length of the text.

    Returns:
        One int64 tensor of shape (characters,).

    Raises:
        FileNotFoundError: if this Python has no source files, or packs them in a zip file.
    """
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore").encode("ascii", "ignore")
        if len(text) >= characters:
            return torch.frombuffer(text[:characters], dtype=torch.uint8).long()
    message = "the demo trains on the standard library's source, which this Python lacks"
    raise FileNotFoundError(message)


def draw_batch(text: Tensor, batch: int, context: int) -> tuple[Tensor, Tensor]:
    """Return random excerpts of a text, and the same excerpts one character later.

    Returns:
        Two int64 tensors of shape (batch, context).
    """
    starts = torch.randint(len(text) - context, (batch, 1))
    positions = starts + torch.arange(context)
    return text[positions], text[positions + 1]
