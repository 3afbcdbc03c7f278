"""Calibration of "certain", "likely" and "hint" on real bugs and correct programs.

    python tests/calibration/calibrate.py

Real bugs are the programs of ``tests/cases`` and its ``variants``, with a marked culprit line, and
the examples of ``autogradviz explain``. Correct programs are their corrected references and the
programs of ``tests/integration``. The table is written to ``assets/calibration.md``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

import autogradviz
from autogradviz.explanations.read_pages import pages

HERE = Path(__file__).parents[1]
OUTPUT = HERE.parent / "assets" / "calibration.md"
CASES = sorted((HERE / "cases").glob("*.py")) + sorted((HERE / "cases" / "variants").glob("*.py"))
WRONG = ("data_write_is_silent", "checkpoint_without_rng", "reentrant_without_rng")
"""Programs of ``tests/integration`` that are silently wrong."""


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def recorded(work):
    """Return the trace of a program, and whether it raised."""
    torch.manual_seed(0)
    random.seed(0)
    raised = False
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            with autogradviz.record(fingerprints=True) as trace:
                work()
        except BaseException:
            raised = True
    return trace, raised


def findings(work):
    """Return the findings of a program, and whether it raised."""
    trace, raised = recorded(work)
    return trace.diagnose(), raised


def marks(text):
    """Return the marked lines of a program: the culprit, and its callers."""
    ends = {"CULPRIT": "culprit", "<-- named": "culprit", "ALSO": "near"}
    return {
        number: kind
        for number, line in enumerate(text.splitlines(), 1)
        for mark, kind in ends.items()
        if line.rstrip().endswith(f"# {mark}")
    }


def judge(found, path, named):
    """Yield the confidence of each finding, and the kind of its line: culprit, near or other."""
    for finding in found:
        line = finding.culprit
        at = named.get(line.lineno) if line is not None and line.filename == str(path) else None
        yield finding.confidence, at or "other"


def bugs():
    """Yield the name of each bug with its judged findings."""
    for path in CASES:
        found, _ = findings(load(path).run)
        yield path.stem, list(judge(found, path, marks(path.read_text(encoding="utf-8"))))
    with tempfile.TemporaryDirectory() as folder:
        single = [page for page in pages() if page.processes == 1 and not page.on_accelerator]
        for page in (page for page in single if "# <-- named" in page.example):
            path = Path(folder) / f"{page.slug.replace('-', '_')}.py"
            path.write_text(page.example, encoding="utf-8")
            names = {}
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(0)
                exec(compile(page.example, str(path), "exec"), names)
            torch.set_default_dtype(torch.float32)
            found = names["trace"].diagnose()
            yield page.slug, list(judge(found, path, marks(page.example)))


def correct(every=1):
    """Yield every nth correct program that does not raise: its name and its confidences."""
    sys.path.insert(0, str(HERE / "integration"))
    import edge_case_programs  # noqa: F401
    import programs
    import training_loops  # noqa: F401 - registers programs

    references = {f"{path.stem}, corrected": load(path).reference for path in CASES}
    for name, work in [*references.items(), *programs.PROGRAMS.items()][::every]:
        found, raised = findings(work)
        if not raised and name not in WRONG:
            yield name, [finding.confidence for finding in found]


def table(every=1):
    """Return the table as Markdown, and a note for every wrong or missing finding.

    Args:
        every: record only every nth correct program.
    """
    first, further, alarms, notes = Counter(), Counter(), Counter(), []
    count = clean = 0
    for name, judged in bugs():
        count += 1
        first.update(judged[:1])
        further.update(confidence for confidence, _ in judged[1:])
        if not judged or judged[0][1] != "culprit":
            notes.append(f"{name}: {judged[:1] or 'nothing found'}")
    for name, confidences in correct(every):
        clean += 1
        alarms.update(set(confidences))
        if set(confidences) - {"hint"}:
            notes.append(f"{name}: false alarm, {confidences}")
    rows = [
        f"| {word} | {sum(first[word, at] for at in ('culprit', 'near', 'other'))} "
        f"| {first[word, 'culprit']} | {first[word, 'near']} | {first[word, 'other']} "
        f"| {further[word]} | {alarms[word]} |"
        for word in ("certain", "likely", "hint")
    ]
    head = [
        f"| confidence | first findings on {count} bugs | naming the culprit | naming its caller "
        f"| naming another line | further findings | findings on {clean} correct programs |",
        "|---|---|---|---|---|---|---|",
    ]
    return [*head, *rows], notes


def main(every=1):
    torch.set_num_threads(1)
    rows, notes = table(every)
    OUTPUT.write_text("\n".join([*rows, *(f"\n- {note}" for note in notes)]) + "\n")
    sys.stdout.write("\n".join([*rows, *notes, ""]))


if __name__ == "__main__":
    main()
