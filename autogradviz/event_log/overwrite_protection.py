"""Atomic writes that never replace a file of another kind by mistake."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.errors import OutputExistsError
from autogradviz.support.rank_and_trace_paths import is_rank_file

if TYPE_CHECKING:
    from collections.abc import Iterator


PathLike: TypeAlias = str | os.PathLike[str]

_BEGINNING: Final = 4_096
_END_OF_FILE: Final = 262_144  # the schema of a Parquet file is in it
"""Bytes at the beginning and the end of a file that are searched for its mark."""


def check_not_exists(path: PathLike) -> None:
    """Check that a path is free.

    Raises:
        OutputExistsError: if anything but an empty file exists there.
    """
    target = Path(path)
    if target.exists() and not (target.is_file() and target.stat().st_size == 0):
        message = f"{target} exists already, and is kept; name another file."
        raise OutputExistsError(message)


def check_folder(target: Path) -> None:
    """Check that a file has a folder.

    Raises:
        FileNotFoundError: if the folder does not exist.
        NotADirectoryError: if another file is in the place of the folder.
    """
    if not target.parent.is_dir():
        number = errno.ENOTDIR if target.parent.exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(target))


@contextmanager
def temp_sibling(target: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of a file, to be renamed to the file when complete.

    An ``OSError`` about the temporary path names the file instead. The folder of a rank's trace
    is created: of the processes of a run, any may be the first to write.

    Raises:
        FileNotFoundError: if the folder does not exist.
        NotADirectoryError: if another file is in the place of the folder.
    """
    if is_rank_file(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    check_folder(target)  # SQLite and Arrow say less
    partial = target.with_name(f".{secrets.token_hex(8)}.agv-partial")
    try:
        yield partial
    except OSError as error:
        if error.filename in (None, str(partial)) and error.errno is not None:
            error.filename, error.strerror = str(target), os.strerror(error.errno)
        raise
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            partial.unlink()


def link_if_absent(partial: Path, target: Path) -> None:
    """Rename a temporary file, unless another process has created the target meanwhile.

    Raises:
        OutputExistsError: if anything but an empty file exists there.
    """
    try:
        os.link(partial, target)
    except OSError:  # an empty file is there, or the file system has no links
        check_not_exists(target)
        partial.replace(target)


def check_overwrites_own_file(
    target: Path, mark: bytes, *, at_end: bool = False, overwrite: bool = False
) -> None:
    """Check that only an earlier output of the same kind would be replaced.

    Args:
        target: the file to write.
        mark: bytes near the beginning of every such output.
        at_end: the bytes are near the end instead, as in Parquet.
        overwrite: allow any regular file.

    Raises:
        OutputExistsError: if another non-empty file exists.
    """
    if target.is_file():
        if overwrite:
            return
        with target.open("rb") as file:
            if at_end:
                file.seek(max(target.stat().st_size - _END_OF_FILE, 0))
            if mark in file.read(_END_OF_FILE if at_end else _BEGINNING):
                return
    check_not_exists(target)


def write_over_own(path: PathLike, text: str, mark: str, *, overwrite: bool = False) -> None:
    """Write text to a file atomically.

    Args:
        path: the file to write; to a device or a pipe the text is written directly.
        text: the contents.
        mark: text near the beginning of every output of that kind.
        overwrite: replace any regular file, not only an earlier output of the same kind.

    Raises:
        OutputExistsError: if another non-empty file exists.
    """
    target = Path(path)
    if target.is_symlink():  # which stays, and may lead to another file system
        target = target.resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    check_overwrites_own_file(target, mark.encode(), overwrite=overwrite)
    with temp_sibling(target) as partial:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
