"""The public names, their return types and their errors."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from make_log import make_log
from public_names import members, public_objects

import autogradviz
from autogradviz import analysis, errors, event_log, events

THIRD_PARTY = {"pd", "go", "torch", "os", "ds"}
TYPING = {"Any", "Callable", "E", "Iterable", "Iterator", "Literal", "Mapping", "Sequence"}
NOT_OURS = THIRD_PARTY | TYPING | set(vars(builtins))
PLUMBING = {"Columns", "Row", "Rows", "Segments", "Tensors"}
"""Types of members of ``Analysis`` and ``Log`` that only other modules of autogradviz use."""


def annotation_names(annotation):
    """Yield the names in the text of an annotation, without those of other packages."""
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.value.id in THIRD_PARTY, annotation
        elif isinstance(node, ast.Name) and node.id not in NOT_OURS:
            yield node.id


def returned_names(thing):
    """Yield the names in the return annotation of a function, a method or a property."""
    if isinstance(thing, property):
        thing = thing.fget
    thing = getattr(thing, "func", getattr(thing, "__func__", thing))
    if inspect.isfunction(thing):
        yield from annotation_names(inspect.unwrap(thing).__annotations__["return"])


RESULTS = [
    (name, result)
    for name, thing in public_objects()
    for result in returned_names(thing)
    if not name.startswith(("Analysis.", "Log."))
]


def test_public_names_are_sorted_and_offered_for_completion():
    assert sorted(autogradviz.__all__) == autogradviz.__all__ == dir(autogradviz)


@pytest.mark.parametrize(("name", "result"), RESULTS)
def test_result_types_of_public_functions_can_be_imported(name, result):
    assert result in autogradviz.__all__ or hasattr(events, result), name


def test_annotations_of_results_are_found():
    assert {("Trace.checkpoints", "Region"), ("load", "Trace"), ("Trace.graph", "GraphView")} <= {
        *RESULTS
    }


def types_of_fields(kind, known):
    """Yield the types of the fields of a dataclass, recursively."""
    if kind not in known and dataclasses.is_dataclass(kind):
        known.add(kind)
        for field in dataclasses.fields(kind):
            for name in annotation_names(field.type):
                types_of_fields(getattr(analysis, name, getattr(events, name, None)), known)
                yield name
                yield from types_of_fields(
                    getattr(analysis, name, getattr(events, name, None)), known
                )


@pytest.mark.parametrize("kind", [autogradviz.Region, autogradviz.TensorHistory])
def test_field_types_can_be_imported_from_analysis_or_events(kind):
    names = set(types_of_fields(kind, set()))
    assert names
    assert {n for n in names if not (hasattr(analysis, n) or hasattr(events, n))} == set()


@pytest.mark.parametrize(("kind", "module"), [("Analysis", analysis), ("Log", event_log)])
def test_result_types_of_analysis_and_log_can_be_imported(kind, module):
    results = {
        result
        for _, thing in members(getattr(autogradviz, kind), kind)
        for result in returned_names(thing)
    }
    found = {name for name in results if hasattr(module, name) or hasattr(events, name)}
    assert results - found - PLUMBING == set()


def public(thing):
    return sorted(name for name in dir(thing) if not name.startswith("_"))


def test_completion_on_a_trace_lists_only_public_names():
    assert public(autogradviz.Trace(make_log())) == [
        "analysis",
        "annotate_memory_snapshot",
        "audit",
        "certificate",
        "checkpoints",
        "compiled_graph",
        "compiled_regions",
        "device_bytes",
        "device_times",
        "diagnose",
        "export",
        "filter",
        "fit",
        "flame_graph",
        "fold",
        "graph",
        "html",
        "live",
        "log",
        "memory_by_kind",
        "memory_holders",
        "not_finite",
        "phase_times",
        "plot_gradients",
        "plot_memory",
        "plot_saved_by_module",
        "plot_timeline",
        "predict_memory",
        "prove",
        "reconcile_memory_snapshot",
        "redacted",
        "reproduce",
        "save",
        "saved_bytes",
        "saved_tensors",
        "selective_policies",
        "snapshot",
        "storage_histories",
        "title",
        "to_pandas",
        "transfers",
        "version_bumps",
        "why",
        "widget",
    ]


def test_completion_on_other_classes_lists_only_public_names():
    assert public(autogradviz.record()) == []
    assert public(autogradviz.Trace(make_log()).graph()) == ["dot", "svg"]
    own = {name for name in vars(autogradviz.TraceWidget) if not name.startswith("_")}
    assert own == {"color_by", "focus", "focused", "height", "select", "selected", "state"}


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.AlreadyRecordingError, RuntimeError),
        (errors.GraphTooLargeError, ValueError),
        (errors.MissingExtraError, ImportError),
        (errors.MissingProgramError, FileNotFoundError),
        (errors.NotAGraphError, ValueError),
        (errors.NotATraceError, ValueError),
        (errors.OutputExistsError, FileExistsError),
        (errors.ProgramNotFoundError, FileNotFoundError),
        (errors.RecordingStateError, RuntimeError),
        (errors.UnknownFormatError, ValueError),
        (errors.UnknownRegionError, ValueError),
        (errors.UnknownSlugError, KeyError),
        (errors.UnsupportedTorchError, RuntimeError),
    ],
)
def test_error_is_a_subclass_of_the_builtin_error(error, builtin):
    assert issubclass(error, (errors.AutogradvizError, builtin))
    assert str(error("no 'quotes' added")) == f"no 'quotes' added [{error.slug}]"


def test_every_error_is_exported_with_a_unique_slug():
    own = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    exported = {name for name, module in autogradviz._MODULES.items() if module == "errors"}
    assert {kind.__name__ for kind in own} == exported <= set(autogradviz.__all__)
    slugs = [kind.slug for kind in own if issubclass(kind, errors.AutogradvizError)]
    assert len(set(slugs)) == len(slugs)


def test_export_docstring_lists_the_formats():
    text = " ".join(autogradviz.Trace.export.__doc__.split())
    assert '"sqlite" (.sqlite, .sqlite3, .db): all events, one table for each type' in text


def run_python(code):
    """Return the output of a new Python process."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_package_imports_the_version_and_nothing_third_party():
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import autogradviz\n"
        "new = set(sys.modules) - before\n"
        "print(*sorted(n for n in new if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    expected = ["", "._version"]
    assert run_python(code).split() == [f"autogradviz{name}" for name in expected]


def test_names_imported_on_first_access_are_the_names_that_type_checkers_see():
    stub = Path(autogradviz.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    seen = {
        alias.name: statement.module
        for statement in ast.parse(stub).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    modules = {name: f"autogradviz.{module}" for name, module in autogradviz._MODULES.items()}
    others = {
        "__version__": "autogradviz._version",
        "events": "autogradviz",
    }
    assert seen == {**modules, **others}
    assert {*seen} == {*autogradviz.__all__}


@pytest.mark.ci(reason="starts an interpreter for each module")
def test_functions_keep_their_names_when_modules_of_the_same_name_are_imported():
    code = (
        "import autogradviz.recording.record_context_manager, autogradviz.explanations.read_pages\n"
        "import autogradviz.comparison.compare_traces\n"
        "from autogradviz import *\n"
        "print(*(each.__name__ for each in (record, explain, compare, graph, load)))\n"
        "print(all(callable(getattr(autogradviz, n)) for n in ('record', 'explain', 'compare')))"
    )
    assert run_python(code) == "record explain compare graph load\nTrue\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'autogradviz' has no attribute 'recrod'"):
        _ = autogradviz.recrod


@pytest.mark.parametrize("method", ["save", "html", "export"])
def test_overwrite_replaces_files_but_no_directory(tmp_path, method):
    trace = autogradviz.Trace(make_log())
    path = tmp_path / "x.dot"
    path.write_text("precious")
    write = getattr(trace, method)
    with pytest.raises(FileExistsError):
        write(path)
    assert path.read_text() == "precious"
    write(path, overwrite=True)
    write(path)  # an earlier output of the same kind
    assert b"precious" not in path.read_bytes()
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="x.dot"):
        write(path, overwrite=True)
    assert list(path.iterdir()) == []
    assert [each.name for each in tmp_path.iterdir()] == ["x.dot"]


def test_overwrite_replaces_a_file_with_a_picture(tmp_path):
    path = tmp_path / "x.svg"
    path.write_text("precious")
    view = autogradviz.Trace(make_log()).graph()
    with pytest.raises(FileExistsError):
        view.svg(path)
    assert view.svg(path, overwrite=True) is None
    assert path.read_text(encoding="utf-8") == view.svg()


def test_documentation_lists_every_public_name():
    text = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text(encoding="utf-8")
    names = {*autogradviz.__all__, *public(autogradviz.Trace(make_log()))} - {"__version__"}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


SMALL = autogradviz.Trace(make_log())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SMALL.graph(depth="2"), TypeError, "depth is a number of module levels, not str"),
        (lambda: SMALL.graph(depth=-1), ValueError, "depth is a number of module levels, from 0"),
        (lambda: SMALL.graph().svg(theme="pink"), ValueError, 'theme is "light" or "dark", not'),
        (lambda: SMALL.flame_graph().svg(theme="pink"), ValueError, 'theme is "light" or "dark"'),
        (lambda: SMALL.saved_bytes("h.9"), ValueError, "no module is named 'h.9'"),
        (lambda: autogradviz.explain(3), TypeError, "explain() takes the slug of a finding"),
        (lambda: autogradviz.explain("q"), KeyError, "no finding or error is called 'q'; `autog"),
        (
            lambda: autogradviz.record(path=b"x.agv"),
            TypeError,
            "takes the path of a trace, not bytes",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
