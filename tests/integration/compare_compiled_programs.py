"""Compare compiled programs with and without a recording.

As a program: compare all of them on each backend, and write a table into ``assets``.

    python compare_compiled_programs.py [CELL ...]

A cell is a backend, a mode and, for Inductor, a state of its caches: "inductor during cold,warm".
Without arguments all cells are compared, which takes 10 minutes of CPU time. Results are kept in a
folder until the table is complete, so that an interrupted comparison continues where it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compiled_programs

RUNNER = Path(__file__).with_name("run_compiled_programs.py")
TABLE = Path(__file__).parents[2] / "assets" / "compiled_programs_unchanged.md"
ENGINES = ("python", "native")
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")
MODES = ("during", "before")
CELLS = [
    *[f"{backend} {mode}" for backend in BACKENDS for mode in MODES],
    *[f"inductor {mode} cold,warm" for mode in MODES],
]
ALL = tuple(compiled_programs.PROGRAMS)
HEAD = """\
| backend | compiled | caches | programs | of which fail, as they do unrecorded | differences |
|---|---|---|---|---|---|
"""


def differences(runs, states=("",)):
    """Return the differences between recorded runs and those without a recording."""
    if len(runs) != (1 + len(ENGINES)) * len(states):
        return ["a run is missing"]
    found = []
    for state in states:
        expected = runs[f"none {state}".strip()]["programs"]
        for engine in ENGINES:
            recorded = runs[f"{engine} {state}".strip()]
            found += [f"{engine}: {name} remains" for name in recorded["remains"]]
            if recorded["programs"].keys() != expected.keys():
                found.append(f"{engine}: a program is missing")
            for name, steps in recorded["programs"].items():
                title = f"{engine} {state}, {name}"
                found += [f"{title}: {each}" for each in _of_program(name, steps, expected[name])]
    return found


def _of_program(name, recorded, expected):
    *steps, failures = recorded
    yield from (f"the recorder failed: {failure}" for failure in failures)
    for number, (step, plain) in enumerate(zip(steps, expected[:-1], strict=True)):
        if step["error"] is not None and name.split()[0] not in compiled_programs.FAILING:
            yield f"step {number} failed: {step['error']}"
        for aspect, value in plain.items():
            if step[aspect] != value:
                yield f"{aspect} of step {number}: {step[aspect]} instead of {value}"


def _compare(cell: str, folder: Path) -> dict[str, object]:
    """Run all programs of a cell; return what differs, and how many programs fail."""
    backend, mode, *states = cell.split()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="caches") as caches:
        command = [sys.executable, str(RUNNER), ",".join(("none", *ENGINES)), backend, mode]
        command += [",".join(ALL), *states, *([caches] if states else [])]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        (folder / f"{cell}.error").write_text(finished.stderr)
        raise SystemExit(f"{cell}: {finished.stderr[-2_000:]}")
    runs = json.loads(finished.stdout.splitlines()[-1])
    names = states[0].split(",") if states else [""]
    plain = runs[f"none {names[0]}".strip()]["programs"].values()
    return {
        "programs": len(plain),
        "fail": sum(any(step["error"] for step in steps[:-1]) for steps in plain),
        "differences": differences(runs, names),
        "seconds": round(time.monotonic() - began),
    }


def _row(cell: str, found: dict[str, object]) -> str:
    backend, mode, *states = cell.split()
    caches = states[0].replace(",", ", then ") if states else "–"
    compiled = {"during": "while it is recorded", "before": "before the recording"}[mode]
    return (
        f"| {backend} | {compiled} | {caches} | {found['programs']} | {found['fail']} | "
        f"{len(found['differences'])} |"  # type: ignore[arg-type]
    )


def main() -> None:
    """Compare the cells that the command line names, and write the table if all are known."""
    folder = Path(os.environ.get("COMPILED_RESULTS", "test-output/compiled"))
    folder.mkdir(parents=True, exist_ok=True)
    for cell in sys.argv[1:] or CELLS:
        path = folder / f"{cell}.json"
        if sys.argv[1:] or not path.exists():
            path.write_text(json.dumps(_compare(cell, folder), indent=1))
        found = json.loads(path.read_text())
        took, count = found["seconds"], len(found["differences"])
        sys.stdout.write(f"{cell}: {count} differences, {took} s\n")
    paths = [folder / f"{cell}.json" for cell in CELLS]
    if all(path.exists() for path in paths):
        rows = [
            _row(cell, json.loads(path.read_text()))
            for cell, path in zip(CELLS, paths, strict=True)
        ]
        TABLE.write_text(HEAD + "\n".join(rows) + "\n")
        for path in paths:
            path.unlink()


if __name__ == "__main__":
    main()
