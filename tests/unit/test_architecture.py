"""The floors of the house: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import autogradviz

HOUSE = Path(autogradviz.__file__).parent
FLOORS = {
    "event_schema": -1,
    "events": 0,
    "errors": 0,
    "_version": 0,
    "deprecation": -1,
    "signals": 0,
    "gc_control": 0,
    "fast_dataclass": 0,
    "event_log": 1,
    "explain": 5,
    "errors_help": 4,
    "analysis": 2,
    "recorder": 2,
    "diagnose": 3,
    "scene": 4,
    "render": 5,
    "export": 6,
    "graph_view": 6,
    "trace": 7,
    "log_source": 2,
    "compare": 8,
    "recording": 8,
    "record": 9,
    "cli": 12,
    "magic": 10,
    "demo": 10,
    "__init__": 11,
    "__main__": 13,
}
FOLDERS = {  # the folders of a large package, and the folders that each may import from
    "diagnose": {
        "source": set(),
        "evidence": {"source"},
        "blame": {"source", "evidence"},
        "rules": {"source", "evidence", "blame"},
    },
    "recorder": {
        "torch_internals": {"saved_tensors", "ops"},
        "ids": {"torch_internals"},
        "ops": {"ids", "torch_internals"},
        "checkpoint": {"ids", "torch_internals"},
        "engine": {"ids", "ops", "saved_tensors", "torch_internals"},
        "saved_tensors": {"checkpoint", "engine", "ids", "ops", "torch_internals"},
        "retention": {"engine", "ids", "ops", "torch_internals"},
    },
}
NEEDS_TORCH = {"recorder", "demo"}
MODULES = sorted(HOUSE.rglob("*.py"))


def room(path):
    """Return the part of the house that a file belongs to: "log", "events", "cli" …"""
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports(path, *, top_level_only=False):
    """Yield the modules that a file imports, with the names taken from them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = _top_level(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def _top_level(tree):
    """Yield what runs when the module is imported: not functions, not TYPE_CHECKING blocks."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def rooms_used(path):
    for module, name in imports(path):
        first, *rest = module.split(".")
        if first == "autogradviz":
            used = rest[0] if rest else name
            if used:  # else the package itself, for its version
                yield used


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_a_file_imports_only_from_lower_floors_or_its_own_room(path):
    own = room(path)
    above = {used for used in rooms_used(path) if used != own and FLOORS[used] >= FLOORS[own]}
    assert above == set()


@pytest.mark.parametrize(
    ("inside", "folder"),
    [(inside, folder) for inside, below in FOLDERS.items() for folder in below],
)
def test_a_folder_uses_only_the_folders_below_it(inside, folder):
    used = {
        module.split(".")[2]
        for path in (HOUSE / inside / folder).glob("*.py")
        for module, _ in imports(path)
        if module.startswith(f"autogradviz.{inside}.")
    }
    assert used & FOLDERS[inside].keys() - {folder} <= FOLDERS[inside][folder]


@pytest.mark.parametrize("inside", FOLDERS)
def test_every_folder_of_a_large_room_has_its_place(inside):
    folders = {path.parent.name for path in (HOUSE / inside).glob("*/*.py")}
    assert folders == FOLDERS[inside].keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_torch_is_imported_on_top_only_where_it_is_needed(path):
    needed = {module.split(".")[0] for module, _ in imports(path, top_level_only=True)}
    assert "torch" not in needed or room(path) in NEEDS_TORCH


def test_a_trace_is_read_and_understood_with_torch_absent():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import autogradviz.event_log, autogradviz.analysis, autogradviz.diagnose\n"
        "import autogradviz.scene, autogradviz.render"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
