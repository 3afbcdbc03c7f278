"""Files that the user's files import.

A file that runs no op appears in no recorded stack, but may contain the culprit.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.source_index import nodes
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_FILES: Final = 100
"""Limit for large projects; files are added in breadth-first order."""


def with_imported(filenames: Iterable[str]) -> tuple[str, ...]:
    """Return files, followed by those that they import from their own folder or package.

    The imports of installed packages are not followed, unless there are no other files: the
    packages below a training have thousands of files.
    """
    known = dict.fromkeys(filenames)
    waiting = [name for name in known if not is_installed(name)] or list(known)
    while waiting and len(known) < MAX_FILES:
        fresh = [found for found in imported_by(waiting.pop(0)) if found not in known]
        known.update(dict.fromkeys(fresh))
        waiting += fresh
    return tuple(known)


def imported_by(filename: str) -> tuple[str, ...]:
    """Return the files that a file imports from its folder or its package's folder."""
    folder = Path(filename).parent
    names = [name for _, node in nodes(filename)
             for name in _names(node)]  # fmt: skip
    if not names or not folder.is_absolute():
        return ()
    found = (_file(root, name.lstrip(".")) for name in names for root in _roots(folder, name))
    return tuple(dict.fromkeys(str(path) for path in found if path is not None))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the dotted module names of an import, with the dots of a relative one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield module
        yield from (f"{module.rstrip('.')}.{alias.name}" if node.module else module + alias.name
                    for alias in node.names)  # fmt: skip


def _roots(folder: Path, name: str) -> list[Path]:
    """Return the folders to search: a file's folder and that of its outermost package."""
    up = len(name) - len(name.lstrip("."))
    if up:
        return [folder if up == 1 else folder.parents[min(up, len(folder.parents)) - 2]]
    outermost = folder
    while (outermost / "__init__.py").is_file():
        outermost = outermost.parent
    return [folder, outermost] if outermost != folder else [folder]


def _file(root: Path, name: str) -> Path | None:
    path = root.joinpath(*name.split(".")) if name else root
    for found in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
        if found.is_file():
            return found
    return None
