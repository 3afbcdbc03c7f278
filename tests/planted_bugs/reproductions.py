"""Measure ``trace.reproduce()``: ``python -m tests.planted_bugs.reproductions --seed N --count M``.

Takes the programs of ``tests/cases`` that raise, and planted bugs that raise. Prints in which share
the written program raises the same, the median number of its statements, the median and the worst
time, and why the other programs do not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from time import monotonic

import torch

import autogradviz
from autogradviz.reproduce.reproduction import reproduce
from autogradviz.reproduce.run_programs import ProgramRunner
from tests.calibration.calibrate import CASES, load
from tests.planted_bugs.__main__ import RAISED, SETS, candidates
from tests.planted_bugs.checks import forked
from tests.planted_bugs.operators import OPERATORS
from tests.planted_bugs.run_program import warm_up


def recorded(work, path):
    """Record a function in a forked process; return the exception that left it, "" for none."""

    def record():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        raised = ""
        try:
            with autogradviz.record() as trace:
                work()
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
            trace.save(path)
        return raised

    return forked(record) or ""


def raising(options, folder):
    """Yield the name of each bug that raises, and the recording of it."""
    for path in CASES[:: options.every] if options.every else ():
        name = folder / f"{path.stem}.agv"
        if recorded(load(path).run, name):
            yield path.stem, name
    programs = sorted(path for each in SETS.values() for path in each.glob("*.py"))
    found = 0
    for path, _, _, _ in candidates(programs, sorted(OPERATORS), options.seed, folder):
        if found == options.count:
            return
        error = recorded(lambda path=path: load(path).main(), path.with_suffix(".agv"))
        if error.startswith(RAISED):
            found += 1
            yield path.stem, path.with_suffix(".agv")


def reason(row):
    """Return why a program does not raise the same, in a few words."""
    if not row["statements"]:
        return "the program could not be written"
    if not row["got"]:
        return "the program raises nothing"
    kinds = [row[name].partition(":")[0] for name in ("expected", "got")]
    return f"{kinds[1]} instead of {kinds[0]}" if kinds[0] != kinds[1] else "another message"


def summary(rows):
    """Return the share of programs that raise the same, their sizes and times, and reasons."""
    same = [row for row in rows if row["same"]]
    lines = [f"the same: {len(same)} of {len(rows)} ({len(same) / max(1, len(rows)):.0%})"]
    if same:
        lines.append(
            f"statements: {statistics.median(row['statements'] for row in same):g} (median)"
        )
    if rows:
        times = [row["seconds"] for row in rows]
        lines.append(f"seconds: {statistics.median(times):.1f} (median), {max(times):.1f} (worst)")
    missed = Counter(reason(row) for row in rows if not row["same"])
    return "\n".join([*lines, *(f"{count:4d} {why}" for why, count in missed.most_common())])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40, help="of planted bugs")
    parser.add_argument(
        "--every", type=int, default=1, help="take every nth program of tests/cases"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="for each program")
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="reproductions-"))
    warm_up()
    rows = []
    for name, path in raising(options, folder):
        trace, began = autogradviz.load(path), monotonic()
        with ProgramRunner(options.seconds) as runner:
            found = reproduce(trace.analysis, (), source=False, seconds=30, runner=runner)
        rows.append({
            "name": name, "same": found.same, "statements": found.statements,
            "seconds": monotonic() - began, "expected": found.expected, "got": found.got,
            "missing": found.missing, "text": found.text,
        })  # fmt: skip
        verdict = "same" if found.same else f"{found.expected[:90]!r}, not {found.got[:90]!r}"
        print(f"{name[:50]:50s} {found.statements:4d} {verdict}", flush=True)
    print(summary(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
