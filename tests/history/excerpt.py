"""Parts of extracted files: some definitions, or one statement of a script, with their lines.

For files whose other parts need what is absent here, such as data, a device or a package.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def find(path: str) -> Path:
    """Return the extracted file of a path."""
    return next(file for file in (Path(part, path) for part in sys.path) if file.is_file())


def definitions(path: str, names: Iterable[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Execute the imports of a file that succeed, and top-level statements that bind names.

    Returns:
        ``namespace``, with them.
    """
    file, wanted = find(path), set(names)
    namespace.setdefault("__name__", __name__)  # a module that exists, for dataclasses
    given = dict(namespace)
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            try:
                _execute(node, file, namespace)
            except (ImportError, KeyError):
                continue
            namespace.update(given)
        elif wanted & _bound(node):
            wanted -= _bound(node)
            _execute(node, file, namespace)
    assert not wanted, f"{path} does not define {wanted}"
    return namespace


def statement(path: str, start: str, namespace: dict[str, Any], number: int = 0) -> None:
    """Execute the statement of a file whose source begins with a text; the first one by default."""
    file = find(path)
    source = file.read_text(encoding="utf-8")
    rows = source.splitlines()
    found = sorted(
        (node for node in ast.walk(ast.parse(source))
         if isinstance(node, ast.stmt) and rows[node.lineno - 1].lstrip().startswith(start)),
        key=lambda node: node.lineno,
    )  # fmt: skip
    _execute(found[number], file, namespace)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def _execute(node: ast.stmt, file: Path, namespace: dict[str, Any]) -> None:
    exec(compile(ast.Module([node], []), str(file), "exec"), namespace)
