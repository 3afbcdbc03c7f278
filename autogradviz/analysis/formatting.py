"""Words for numbers, bytes, times, shapes, op names and source lines: one function for each."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import SourceLocation

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_ONE_PERCENT: Final = 0.01
_TEN_SECONDS_NS: Final = 10**10
_MULTIPLES: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def plural(count: int, word: str) -> str:
    """Return "1 node", "1,234 nodes"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def percent(share: float) -> str:
    """Return "43 %", "under 1 %"."""
    return "under 1 %" if 0 < share < _ONE_PERCENT else f"{share:.0%}".replace("%", " %")


def format_duration(duration_ns: int) -> str:
    """Return nanoseconds as "12.3 ms", from ten seconds on as "12.3 s"."""
    if duration_ns >= _TEN_SECONDS_NS:
        return f"{duration_ns / 1e9:,.1f} s"
    return f"{duration_ns / 1e6:,.1f} ms"


def format_bytes(nbytes: int) -> str:
    """Return a byte count in decimal units: "48 B", "16 kB", "3.1 MB"."""
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:  # noqa: PLR2004  would read "1000"
        value, unit = value / 1000, unit + 1
    small = value < 9.95 and unit > 0  # noqa: PLR2004  would read "10.0"
    return f"{value:.1f} {_UNITS[unit]}" if small else f"{value:.0f} {_UNITS[unit]}"


@lru_cache(maxsize=4_096)
def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as "4×12×256", and "scalar" for a tensor without dimensions."""
    return "×".join(map(str, shape)) if shape else "scalar"


@cache
def display_op_name(name: str) -> str:
    """Return a short op name without implementation affixes: "layer_norm", "softmax"."""
    return name.strip("_").removeprefix("native_").removesuffix("_forward") + (
        "_" if name.endswith("_") else ""
    )


def short_path(filename: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(filename.replace("\\", "/").split("/")[-2:])


def location_in_folder(location: SourceLocation) -> str:
    """Return a line with the last two parts of its path, "model/gpt.py:31", or its cell."""
    if location.cell is not None:
        return str(location)
    return f"{short_path(location.place)}:{location.lineno}"


def short_location(location: SourceLocation | None) -> str:
    """Return a source line with the name of its file, "gpt.py:31", or "an unknown line"."""
    if location is None:
        return "an unknown line"
    return location_in_folder(location).rpartition("/")[2]


def source_line(location: SourceLocation | None) -> tuple[str, int, str]:
    """Return file or cell, line number and text of a line; "", 0 and "" if it is unknown."""
    return (location.place, location.lineno, location.text) if location else ("", 0, "")


def short_source_line(location: SourceLocation | None) -> tuple[str, int, str]:
    """Return a line as ``source_line`` does, with the name of the file instead of its path."""
    filename, lineno, text = source_line(location)
    return short_path(filename).rpartition("/")[2], lineno, text


_TENSOR: Final = re.compile(r"(\w+ [\w×]+(?: \w+(?::\d+)?)?) #(\d+) v(\d+)(, requires grad)?")

_LENGTH: Final = re.compile(r"len (\d+)(?:, (.*) first|, content (\w+))?")


def is_length(state: str) -> bool:
    """Return whether a recorded state is the length of a container: "len 2"."""
    return _LENGTH.fullmatch(state) is not None


def state_texts(before: str, after: str, unchanged: int = 0) -> tuple[str, str]:
    """Return two recorded states of one object in words: "1 key" and "2 keys".

    What else is known of containers, such as "2 keys, first 0", is there if they are as long.
    Of a tensor, the second one says how often it was written since: "float32 4, written once".

    Args:
        before: the first state.
        after: the second state.
        unchanged: the number of writes between them that stored a tensor into itself.
    """
    tensors = _TENSOR.fullmatch(before), _TENSOR.fullmatch(after)
    if any(tensors):
        return _tensor_texts((before, after), tensors, unchanged)
    found = _LENGTH.fullmatch(before), _LENGTH.fullmatch(after)
    is_mapping = any(match is not None and match[2] is not None for match in found)
    lengths = [match[1] for match in found if match is not None]
    brief = len(set(lengths)) > 1
    first, second = (
        state if match is None else _container_text(match, is_mapping=is_mapping, brief=brief)
        for state, match in zip((before, after), found, strict=True)
    )
    return first, second


def _tensor_texts(
    states: tuple[str, str],
    found: tuple[re.Match[str] | None, re.Match[str] | None],
    unchanged: int,
) -> tuple[str, str]:
    first, second = (
        state if match is None else match[1] + (match[4] or "")
        for state, match in zip(states, found, strict=True)
    )
    before, after = found
    if first == second and before is not None and after is not None:
        writes = int(after[3]) - int(before[3]) - unchanged
        if before[2] != after[2]:
            second += ", in other memory"
        elif writes > 0:
            times = {1: "once", 2: "twice"}.get(writes, f"{writes:,} times")
            second += f", written {times}"
    return first, second


def _container_text(match: re.Match[str], *, is_mapping: bool, brief: bool) -> str:
    count, first, content = match.groups()
    words = f"{count} {'key' if is_mapping else 'item'}{'' if count == '1' else 's'}"
    if brief or (first is None and content is None):
        return words
    return f"{words}, content {content}" if first is None else f"{words}, first {first}"


def read_bytes(budget: float | str) -> int:
    """Return a number of bytes, "24 GB" or "24 GiB".

    Raises:
        ValueError: if the text is none.
    """
    if not isinstance(budget, str):
        return int(budget)
    found = re.fullmatch(r"([\d.]+)\s*([a-z]*)", budget.strip().lower())
    if found is None or found[2] not in _MULTIPLES:
        message = f"{budget!r} is no number of bytes; write 24 GB, or 24 GiB"
        raise ValueError(message)
    return round(float(found[1]) * _MULTIPLES[found[2]])


def join_repeated(texts: Iterable[str]) -> str:
    """Return "float32 3, float32 ×28" for one text and 28 equal ones."""
    runs = [(text, len(list(same))) for text, same in groupby(texts)]
    return ", ".join(f"{text} ×{count}" if count > 1 else text for text, count in runs)
