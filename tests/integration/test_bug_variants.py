"""Variants of the bug cases, in this interpreter: the reported line."""

import importlib.util
from pathlib import Path

import chosen_device
import pytest

import autogradviz

VARIANTS = sorted((Path(__file__).parent.parent / "cases" / "variants").glob("*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"variant_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marked(path, mark):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]


@pytest.mark.one_in(6, reason="runs each program again", in_ci=2)
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_first_finding_names_the_culprit_line_of_a_variant(path):
    chosen_device.skip_if_only_on_host(path.stem)
    module, notes = load(path), 1
    try:
        with autogradviz.record(fingerprints=True) as trace:
            module.run()
    except Exception as error:
        notes = len(error.__notes__)
    assert notes == 1
    first = trace.diagnose()[0]
    assert (first.culprit.filename, [first.culprit.lineno]) == (str(path), marked(path, "CULPRIT"))
    # If the guilty line also raises, it has only one mark.
    assert first.victim.lineno in (marked(path, "VICTIM") or marked(path, "CULPRIT"))


@pytest.mark.one_in(4, reason="runs each program again", in_ci=2)
@pytest.mark.parametrize(
    "fingerprints",
    [
        pytest.param(True, id="fingerprints"),
        pytest.param(
            False,
            id="no fingerprints",
            marks=pytest.mark.slow(reason="with fingerprints there are more findings"),
        ),
    ],
)
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_correct_reference_gives_no_finding(path, fingerprints):
    chosen_device.skip_if_only_on_host(path.stem)
    module = load(path)
    with autogradviz.record(fingerprints=fingerprints) as trace:
        module.reference()
    assert [f.slug for f in trace.diagnose() if f.confidence != "hint"] == []
