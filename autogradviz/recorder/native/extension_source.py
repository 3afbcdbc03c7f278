"""The source of the extension of the native engine, and how it is compiled.

``release/build_engines.py`` loads this file by its path, without PyTorch and without the rest of
the package, so it uses the standard library alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = Path(__file__).parent
_QUICKER: Final = (
    *("-fno-ipa-cp", "-fno-ipa-icf", "-fno-ipa-modref", "-fno-ipa-ra", "-fno-ipa-sra"),
    *("-fno-ipa-vrp", "-fno-gcse", "-fno-schedule-insns2", "-fno-thread-jumps"),
    *("-fno-tree-pre", "-fno-tree-slp-vectorize", "-fno-tree-tail-merge"),
)
"""Options of g++ that make a build a fifth cheaper and the engine no slower: they leave out passes
of ``-O2`` that find little in short functions."""


def sources() -> list[Path]:
    """Return the files that determine the extension: its source, and this one for the options."""
    return sorted([*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"), Path(__file__)])


@cache
def source_digest() -> str:
    """Return the digest of the files that determine the extension."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find_compiler() -> list[str] | None:
    """Return the command of the C++ compiler, None if there is none."""
    chosen = os.environ.get("CXX")
    if chosen:
        return chosen.split() or None
    found = shutil.which("g++") or shutil.which("clang++")
    return None if found is None else [found]


def arguments_for(compiler: str, headers: Path, libraries: Path, python: Path) -> Iterator[str]:
    """Yield the arguments of a compiler for any PyTorch and Python, without the output.

    Args:
        compiler: the compiler.
        headers: the folder of PyTorch's headers.
        libraries: the folder of PyTorch's libraries.
        python: the folder of Python's headers.
    """
    yield from ("-O2", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-w")
    if Path(compiler).name.startswith("g++"):
        yield from _QUICKER
    yield "-DAT_PER_OPERATOR_HEADERS"  # a third less to compile
    for folder in (headers, headers / "torch/csrc/api/include", python):
        yield f"-I{folder}"
    yield str(_FOLDER / "module.cpp")
    yield from (f"-L{libraries}", "-ltorch_python", "-ltorch_cpu", "-lc10")
