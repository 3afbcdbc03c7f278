"""The layers of the package: allowed imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import autogradviz
from autogradviz.support.source_lines_and_libraries import parse

PACKAGE = Path(autogradviz.__file__).parent
LAYERS = {
    "support": -1,
    "_version": 0,
    "errors": 0,
    "events": 0,
    "entry_points": 1,
    "explanations": 2,
    "breakpoints": 0,
    "recording_options": 1,
    "event_log": 1,
    "compiled_graphs": 1,
    "sql_queries": 2,
    "analysis": 2,
    "recorder": 2,
    "diagnose": 3,
    "memory_snapshots": 3,
    "causes": 4,
    "scene": 5,
    "render": 6,
    "export": 7,
    "live": 7,
    "trace_method_results": 7,
    "reproduce": 7,
    "experiments": 7,
    "plugins": 8,
    "trace": 8,
    "comparison": 9,
    "recording": 10,
    "distributed_runs": 10,
    "checking": 11,
    "continuous_integration": 11,
    "demo": 11,
    "planning": 12,
    "integrations": 12,
    "notebook": 12,
    "__init__": 13,
    "cli": 14,
    "__main__": 15,
}
FOLDERS = {  # folders of a large package, with the folders that each may import from
    "diagnose": {
        "source": set(),
        "evidence": {"source"},
        "blame": {"source", "evidence"},
        "rules": {"source", "evidence", "blame"},
    },
}
RECORDER = (  # folders and modules: each may import from the previous ones
    "torch_internals",
    "callable_names",
    "event_writer",
    "recorder_failures",
    "thread_state",
    "modules_and_tensors_inside",
    "user_code_frames",
    "source_around_lines",
    "names_in_program",
    "raised_errors",
    "step_digest",
    "own_hook",
    "nodes_behind_outputs",
    "engine_interface",
    "session",
    "device_times",
    "stream_order",
    "modes_and_transforms",
    "leaf_tensors_and_versions",
    "ops",
    "module_names_and_calls",
    "observe_placements",
    "observe_sharded_parameters",
    "saved_tensors",
    "compile",
    "backward",
    "out_of_memory",
    "owners",
    "debugger_stops",
    "verify",
    "checkpoint",
    "hook_points",
    "retention",
    "python_engine",
    "native",
    "choose_engine",
    "rank_and_process_groups",
    "recorder",
    "__init__",
)
FOLDERS["recorder"] = {unit: set(RECORDER[:place]) for place, unit in enumerate(RECORDER)}
FOLDERS["recorder"]["checkpoint"].remove("backward")
FOLDERS["recorder"]["native"].remove("python_engine")
NEEDS_TORCH = {"recorder", "demo", "experiments", "checking", "planning"}
# The last three run the user's step.
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path):
    """Return the top-level module or package of a file: "event_log", "events", "cli" …"""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def _tree(path):
    return parse(path.read_text(encoding="utf-8"))


@cache
def imports(path, *, top_level_only=False):
    """Return the modules that a file imports, with the names taken from them."""
    return tuple(_imports(path, top_level_only=top_level_only))


def _imports(path, *, top_level_only):
    tree = _tree(path)
    nodes = _top_level(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def _top_level(tree):
    """Yield the nodes that run on import: not functions, not TYPE_CHECKING blocks."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def parts_used(path):
    for module, name in imports(path):
        first, *rest = module.split(".")
        if first == "autogradviz":
            used = rest[0] if rest else name
            if used:  # else the package itself, for its version
                yield used


def test_files_import_only_from_lower_layers_or_their_own_part():
    above = [
        (str(path), used)
        for path in MODULES
        for used in parts_used(path)
        if used != part_of(path) and LAYERS[used] >= LAYERS[part_of(path)]
    ]
    assert above == []


def unit(path, inside):
    """Return the folder of a package that a file is in, or its own name if it is in none."""
    return path.relative_to(PACKAGE / inside).parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    ("inside", "folder"),
    [(inside, folder) for inside, below in FOLDERS.items() for folder in below],
)
def test_folder_imports_only_from_allowed_folders(inside, folder):
    used = {
        module.split(".")[2]
        for path in (PACKAGE / inside).rglob("*.py")
        if unit(path, inside) == folder
        # The interface names types of later modules, which it does not load.
        for module, _ in imports(path, top_level_only=folder == "engine_interface")
        if module.startswith(f"autogradviz.{inside}.")
    }
    assert used & FOLDERS[inside].keys() - {folder} <= FOLDERS[inside][folder]


@pytest.mark.parametrize("inside", FOLDERS)
def test_every_folder_of_a_large_package_is_listed(inside):
    folders = {path.parent.name for path in (PACKAGE / inside).glob("*/*.py")}
    assert folders == {folder for folder in FOLDERS[inside] if (PACKAGE / inside / folder).is_dir()}


def test_every_module_of_the_recorder_is_listed():
    units = {unit(path, "recorder") for path in (PACKAGE / "recorder").rglob("*.py")}
    assert units == set(RECORDER)


def module_name(path):
    """Return the dotted name of a file: "autogradviz.scene.build_scene"; of a package its own."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_modules_have_no_import_cycles():
    """Function-level imports and imports for type checkers count too, but for the interface."""
    names = {module_name(path) for path in MODULES}
    graph = {
        module_name(path): {
            f"{module}.{name}" if f"{module}.{name}" in names else module
            for module, name in imports(path, top_level_only=path.stem == "engine_interface")
        }
        & names
        for path in MODULES
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which lists the cycle


def test_parts_of_the_recorder_do_not_read_the_recorder():
    """Tables receive their dependencies in their constructors."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in (PACKAGE / "recorder").rglob("*.py")
        if path.name != "recorder.py"
        for node in ast.walk(_tree(path))
        if (isinstance(node, ast.Name) and node.id == "recorder")
        or (isinstance(node, ast.Attribute) and node.attr in {"recorder", "_recorder"})
    ]
    assert found == []


def private_torch_names(path):
    """Yield the private names that a file reads from torch: "_C", "_ops", "_checkpoint_hook"."""
    tree = _tree(path)
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    roots.add(alias.asname or "torch")
                    yield from filter(is_private, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "torch":
            roots.update(alias.asname or alias.name for alias in node.names)
            yield from filter(is_private, node.module.split("."))
            yield from filter(is_private, [alias.name for alias in node.names])
    for node in ast.walk(tree):
        parts = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else [""]
        if parts[0] in roots:
            yield from filter(is_private, parts)


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def test_private_names_of_torch_are_read_in_one_folder_only():
    allowed = PACKAGE / "recorder" / "torch_internals"
    found = {str(path): sorted(private_torch_names(path)) for path in MODULES
             if path.parent != allowed}  # fmt: skip
    assert {path: names for path, names in found.items() if names} == {}


def test_torch_is_imported_at_module_level_only_where_allowed():
    needs_torch = {
        part_of(path)
        for path in MODULES
        for module, _ in imports(path, top_level_only=True)
        if module.split(".")[0] == "torch"
    }
    assert needs_torch <= NEEDS_TORCH


def test_rich_is_imported_in_one_module_only():
    """Its first import changes the state of ``random``; the demo is a program of its own."""
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        for module, _ in imports(path, top_level_only=True)
        if module.split(".")[0] == "rich"
    }
    assert importing == {"support/import_rich_keep_random_state.py", "demo/progress_on_terminal.py"}


def test_trace_is_loaded_and_analyzed_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import autogradviz.event_log, autogradviz.analysis, autogradviz.diagnose\n"
        "import autogradviz.scene, autogradviz.render"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
