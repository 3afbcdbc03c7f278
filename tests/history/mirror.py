"""Files and diffs of commits, read from local copies of git repositories."""

from __future__ import annotations

import ast
import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class AbsentError(LookupError):
    """A repository, commit or file is not in the mirror."""


def repository(mirror: Path, name: str) -> Path:
    """Return the git directory of ``owner/name`` in a mirror."""
    for base in (mirror / name.replace("/", "+"), mirror / name, mirror / f"{name}.git"):
        for folder in (base / "repo/.git", base / "repo", base / ".git", base):
            if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
                return folder
    msg = f"{name} is not in {mirror}"
    raise AbsentError(msg)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={folder}", *arguments],
        capture_output=True, text=True, check=False, encoding="utf-8", errors="replace",
    )  # fmt: skip
    if done.returncode:
        raise AbsentError(done.stderr.strip())
    return done.stdout


def extract(mirror: Path, case, commit: str, target: Path) -> None:
    """Write the files of a case, as they are in a commit, below a folder.

    A path that ends with "/" stands for all Python files below it.
    """
    folder = repository(mirror, case.repository)
    for path in case.paths:
        found = [path]
        if path.endswith("/"):
            listed = git(folder, "ls-tree", "-r", "--name-only", commit, "--", path)
            found = [name for name in listed.splitlines() if name.endswith(".py")]
        for name in found:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(git(folder, "show", f"{commit}:{name}"), encoding="utf-8")


def commits(case) -> tuple[str, str]:
    """Return the commits of the bug and of the fix."""
    return case.bug or f"{case.fix}^", case.fix


def label(mirror: Path, case) -> dict[str, set[int]]:
    """Return the lines of the bug that the fix changes, and those that the case adds, by file.

    A line stands for the statement that it is part of. Where the fix only inserts lines, the
    lines before and after them count.
    """
    folder, (bug, fix) = repository(mirror, case.repository), commits(case)
    lines: dict[str, set[int]] = {}
    for path in case.paths:
        found = set(case.also.get(path, ()))
        for hunk in HUNK.finditer(git(folder, "diff", "--unified=0", bug, fix, "--", path)):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            changed = range(start, start + count) if count else range(start, start + 2)
            ranges = case.within.get(path, ((1, 10**9),) if not case.within else ())
            found |= {n for n in changed if any(low <= n <= high for low, high in ranges)}
        if found:
            lines[path] = statements(git(folder, "show", f"{bug}:{path}"), found)
    return lines


def statements(source: str, lines: set[int]) -> set[int]:
    """Return lines and all other lines of the statements that they are part of.

    Of a statement with a body, these are the lines of its head.
    """
    found = set(lines)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            span = set(range(node.lineno, max(node.lineno, last or node.lineno) + 1))
            if span & lines:
                found |= span
    return found
