"""Checks what a native engine for wheels needs from the libraries that it will meet."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import elf_symbols

if TYPE_CHECKING:
    from pathlib import Path

NEWEST: Final = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
"""The newest versions of symbols on systems of ``manylinux_2_28``."""

_VERSION: Final = re.compile(r"([A-Z]+)_([\d.]+)$")
_PYTHON: Final = re.compile(r"_?Py")
_PUBLIC: Final = (
    "import ctypes, sys; [print(n) for n in sys.argv[1:] if not hasattr(ctypes.pythonapi, n)]"
)


def check(engine: Path, torch_symbols: set[str], python: str) -> None:
    """Exit with a message if an engine needs a symbol that it will not find.

    Args:
        engine: the path of the engine.
        torch_symbols: the symbols that PyTorch's libraries define.
        python: an interpreter of the version that the engine is for.
    """
    needed = _needed(engine)
    problems = [text for symbol in needed if (text := too_new(symbol.version)) is not None]
    names = [each.name for each in needed if each.version is None]
    plain = [name for name in names if name not in torch_symbols]
    of_python = [name for name in plain if _PYTHON.match(name)]
    problems += [f"{name} is in no library" for name in plain if name not in of_python]
    asked = subprocess.run(
        [python, "-Ic", _PUBLIC, *of_python], capture_output=True, text=True, check=True
    )
    problems += [f"{name} is not in {python}" for name in asked.stdout.split()]
    if problems:
        sys.exit(f"{engine.name}: " + "; ".join(sorted(set(problems))))


def needed_from_torch(engine: Path, torch_symbols: set[str]) -> list[str]:
    """Return the symbols that an engine takes from PyTorch."""
    return sorted({each.name for each in _needed(engine)} & torch_symbols)


def _needed(engine: Path) -> list[elf_symbols.Symbol]:
    found = elf_symbols.symbols(engine.read_bytes())
    return [each for each in found if not each.defined and not each.weak]


def too_new(version: str | None) -> str | None:
    """Return why a version such as ``GLIBC_2.34`` is too new, None if it is not."""
    match = _VERSION.match(version or "")
    if match is None:
        return None
    numbers = tuple(map(int, match[2].split(".")))
    newest = NEWEST.get(match[1])
    return f"{version} is too new" if newest is not None and numbers > newest else None
