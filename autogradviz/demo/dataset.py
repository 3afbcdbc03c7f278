"""Text to train on that every machine has: the source of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

CHARACTERS: Final = 200_000


def read_text(characters: int = CHARACTERS) -> Tensor:
    """Return that many ASCII characters of the standard library's source, as int64.

    Raises:
        FileNotFoundError: this Python has no sources; some are packed in a zip file.
    """
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore").encode("ascii", "ignore")
        if len(text) >= characters:
            return torch.frombuffer(text[:characters], dtype=torch.uint8).long()
    message = "the demo trains on the standard library's source, which this Python lacks"
    raise FileNotFoundError(message)


def draw_batch(text: Tensor, batch: int, context: int) -> tuple[Tensor, Tensor]:
    """Return random excerpts of a text, and the same one character later."""
    starts = torch.randint(len(text) - context, (batch, 1))
    places = starts + torch.arange(context)
    return text[places], text[places + 1]
