"""Text that UTF-8 can encode: lone surrogates are escaped."""

from __future__ import annotations


def escape_surrogates(text: str) -> str:
    """Return text with lone surrogates escaped, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()
