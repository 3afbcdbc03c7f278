"""Text that any file can hold."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Return text without lone surrogates, which UTF-8 cannot hold: they are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
