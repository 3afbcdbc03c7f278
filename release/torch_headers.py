"""Fetches what a native engine is built against: headers of PyTorch, and tables of its symbols.

Headers are stored once for each content, by the hash that the RECORD of their wheel names, so that
wheels which share them need no second download.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import elf_symbols
import wheel_over_http

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

PLATFORM: Final = "manylinux_2_28_x86_64"
_SHARED: Final = ("libtorch_cpu.so", "libc10.so")
"""Libraries that do not depend on the version of Python: read once for each release."""
_HEADERS: Final = re.compile(r"torch/include/(?:ATen|c10|caffe2|torch|pybind11)/.*\.(?:h|hpp|inc)$")


class TorchWheel(NamedTuple):
    """What is known of one wheel of PyTorch."""

    version: str
    python: str
    git_version: str
    headers: dict[str, str]
    """The hash of each header, by its path below ``torch/include``."""
    symbols: list[str]
    """The symbols that its libraries define."""


def fetch(version: str, python: str, folder: Path) -> TorchWheel | None:
    """Return what a build needs from a wheel, None if there is no such wheel.

    Args:
        version: the release of PyTorch.
        python: the version of Python, such as ``3.12``.
        folder: a folder that keeps what was fetched.
    """
    known = folder / f"torch-{version}-{python}.json"
    if not known.exists():
        url = wheel_over_http.find(f"torch==={version}", python, PLATFORM)
        if url is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(_read(url, version, python, folder)._asdict()))
    return TorchWheel(**json.loads(known.read_text(encoding="utf-8")))


def _read(url: str, version: str, python: str, folder: Path) -> TorchWheel:
    with wheel_over_http.open_wheel(url) as wheel:
        hashes = _recorded_hashes(wheel)
        headers = {name: value for name, value in hashes.items() if _HEADERS.match(name)}
        for name in sorted(headers, key=lambda each: wheel.getinfo(each).header_offset):
            _store(wheel, name, headers[name], folder)
        symbols = _symbols(wheel, "libtorch_python.so") | _shared_symbols(wheel, version, folder)
        text = wheel.read("torch/version.py").decode()
    git_version = re.search(r"git_version = '(\w+)'", text)
    if git_version is None:
        message = f"torch/version.py of {version} names no revision"
        raise ValueError(message)
    below = {name.removeprefix("torch/include/"): value for name, value in headers.items()}
    return TorchWheel(version, python, git_version[1], below, sorted(symbols))


def _symbols(wheel: zipfile.ZipFile, library: str) -> set[str]:
    found = elf_symbols.symbols(wheel.read(f"torch/lib/{library}"))
    return {symbol.name for symbol in found if symbol.defined}


def _shared_symbols(wheel: zipfile.ZipFile, version: str, folder: Path) -> set[str]:
    known = folder / f"torch-{version}-symbols.json"
    if not known.exists():  # 120 MB are read
        found = set().union(*(_symbols(wheel, library) for library in _SHARED))
        known.write_text(json.dumps(sorted(found)), encoding="utf-8")
    return set(json.loads(known.read_text(encoding="utf-8")))


def _recorded_hashes(wheel: zipfile.ZipFile) -> dict[str, str]:
    (record,) = (name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
    return recorded_hashes(wheel.read(record).decode())


def recorded_hashes(record: str) -> dict[str, str]:
    """Return the hash of each file that the RECORD of a wheel names."""
    rows = csv.reader(io.StringIO(record))
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if row and row[1]}


def _store(wheel: zipfile.ZipFile, name: str, expected: str, folder: Path) -> None:
    path = folder / "headers" / expected
    if path.exists():
        return
    content = wheel.read(name)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    if digest != expected:
        message = f"{name} is not what the RECORD of its wheel says"
        raise ValueError(message)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def lay_out(wheel: TorchWheel, folder: Path, target: Path) -> None:
    """Make a folder of headers as PyTorch installs them."""
    for name, value in wheel.headers.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to((folder / "headers" / value).resolve())
