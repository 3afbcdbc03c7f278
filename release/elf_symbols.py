"""Reads the dynamic symbols of 64-bit little-endian ELF files."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNSYM, _VERSYM, _VERNEED = 11, 0x6FFFFFFF, 0x6FFFFFFE
_WEAK: Final = 2


class Symbol(NamedTuple):
    """A dynamic symbol."""

    name: str
    defined: bool
    weak: bool
    version: str | None
    """The version that an undefined symbol must have, such as ``GLIBC_2.14``."""


class _Section(NamedTuple):
    kind: int
    content: memoryview
    link: int


def symbols(content: bytes) -> list[Symbol]:
    """Return the dynamic symbols of a file."""
    if content[:6] != b"\x7fELF\x02\x01":
        message = "not a 64-bit little-endian ELF file"
        raise ValueError(message)
    sections = list(_sections(content))
    (table,) = (each for each in sections if each.kind == _DYNSYM)
    names = bytes(sections[table.link].content)
    versions = _needed_versions(sections)
    numbers = next((bytes(each.content) for each in sections if each.kind == _VERSYM), b"")
    found = []
    for index, fields in enumerate(_SYMBOL.iter_unpack(table.content)):
        name, info, section = fields[0], fields[1], fields[3]
        number = int.from_bytes(numbers[2 * index : 2 * index + 2], "little") & 0x7FFF
        version = versions.get(number)
        found.append(Symbol(_text(names, name), section != 0, info >> 4 == _WEAK, version))
    return found[1:]


def _sections(content: bytes) -> Iterator[_Section]:
    (offset,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    view = memoryview(content)
    for index in range(count):
        _, kind, _, _, start, length, link, _, _, _ = _SECTION.unpack_from(
            content, offset + index * size
        )
        yield _Section(kind, view[start : start + length], link)


def _needed_versions(sections: list[_Section]) -> dict[int, str]:
    """Return the versions that a file needs, by the number that its symbols refer to."""
    versions = {}
    for section in sections:
        if section.kind != _VERNEED:
            continue
        names, content, offset = bytes(sections[section.link].content), section.content, 0
        while True:
            _, count, _, first, following = struct.unpack_from("<HHIII", content, offset)
            place = offset + first
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from("<IHHII", content, place)
                versions[number] = _text(names, name)
                place += step
            if not following:
                break
            offset += following
    return versions


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()
