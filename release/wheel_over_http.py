"""Reads single files of a wheel on a package index, without downloading the wheel.

A wheel of PyTorch has up to a gigabyte, of which building an extension needs the headers, some
15 MB, and checking its symbols the first megabytes of three libraries. A wheel is a zip file, and
servers of package indexes answer requests for ranges of bytes.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Final

_BLOCK: Final = 1 << 20
_TIMEOUT_S: Final = 120


def released(package: str) -> list[str]:
    """Return the versions of a package that pip can fetch for this Python, the newest first."""
    pip = [sys.executable, "-m", "pip", "index", "versions", package]
    ran = subprocess.run(pip, capture_output=True, text=True, check=False)
    marker = "Available versions:"
    lines = [line for line in ran.stdout.splitlines() if line.startswith(marker)]
    return lines[0].removeprefix(marker).replace(",", " ").split() if lines else []


def find(requirement: str, python: str, platform: str) -> str | None:
    """Return the address of the wheel that pip would install, None if there is none.

    Args:
        requirement: such as ``torch===2.14.1``.
        python: such as ``3.12``.
        platform: the tag of a platform.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps"),
            *("--ignore-installed", "--use-feature=fast-deps", "--only-binary=:all:"),
            *("--python-version", python, "--platform", platform, "--target", folder),
            *("--report", str(report), requirement),
        ]  # fast-deps: the metadata is read over ranges as well
        ran = subprocess.run(pip, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            return None
        (item,) = json.loads(report.read_text(encoding="utf-8"))["install"]
    return str(item["download_info"]["url"])


class RemoteFile(io.RawIOBase):
    """A file on a server, read in blocks that are kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._position = 0
        self._blocks: dict[int, bytes] = {}
        with self._request("bytes=0-0") as answer:
            self.size = int(answer.headers["Content-Range"].rpartition("/")[2])

    def _request(self, span: str) -> urllib.request._UrlopenRet:
        request = urllib.request.Request(self._url, headers={"Range": span})  # noqa: S310
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
        if answer.status != 206:  # noqa: PLR2004 - partial content
            message = "the server of the package index does not answer requests for ranges"
            raise OSError(message)
        return answer

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            first = number * _BLOCK
            last = min(first + _BLOCK, self.size) - 1
            with self._request(f"bytes={first}-{last}") as answer:
                self._blocks[number] = answer.read()
        return self._blocks[number]

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        self._position = offset + {0: 0, 1: self._position, 2: self.size}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return bytes from the position on."""
        rest = self.size - self._position
        wanted = rest if size is None or size < 0 else min(size, rest)
        parts = []
        while wanted > 0:
            number, start = divmod(self._position, _BLOCK)
            part = self._block(number)[start : start + wanted]
            parts.append(part)
            self._position += len(part)
            wanted -= len(part)
        return b"".join(parts)


def open_wheel(url: str) -> zipfile.ZipFile:
    """Return a wheel on a server, or in a folder that pip is told to use, as a zip file."""
    local = url.removeprefix("file://")
    return zipfile.ZipFile(local if local != url else RemoteFile(url))
