"""Plant bugs in correct programs and ask for the line: ``python -m tests.planted_bugs --seed N``.

Each seed is a new set of bugs. A mutant is kept if it raises, computes something else, or leaves
tensors behind; then it is recorded. For each mechanism, the share of bugs is printed in which

* ``first``: the first finding of ``diagnose()`` is on the planted line,
* ``five``: one of its first five findings is,
* ``audit``: one of the first five entries of ``audit()`` is,
* ``why``: the answer of ``why()``, asked about the exception, the value that differs most, or
  memory, ends on it,
* ``silent``: ``diagnose()`` found nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
from pathlib import Path

from tests.planted_bugs.operators import OPERATORS, mutate, plain
from tests.planted_bugs.run_program import differs, run, symptoms, warm_up

HERE = Path(__file__).parent
SETS = {"programs": HERE / "programs", "kept_back": HERE / "kept_back"}
RAISED = ("RuntimeError", "CheckpointError", "NotImplementedError")
"""Exceptions of PyTorch; a mutant that raises another one is a bug of another kind."""


def candidates(programs, names, seed, folder):
    """Yield the path of each mutant, its operator, program and planted lines, in random order."""
    rng, known = random.Random(seed), set()
    for number in range(10_000):
        name, program = names[number % len(names)], rng.choice(programs)
        made = mutate(program.read_text(encoding="utf-8"), name, rng)
        if made is not None and made[0] not in known:
            known.add(made[0])
            path = folder / f"m{number:04d}_{name}_{program.stem}.py"
            path.write_text(made[0], encoding="utf-8")
            yield path, name, program, made[1]


def examine(candidate):
    """Return the row of a mutant; None if it does what the program does."""
    path, name, program, planted = candidate
    correct, bug = _correct(program, path.parent), run(path, recorded=False)
    if correct is None or correct["error"] or bug is None:
        return None
    if bug["error"]:
        kind = "raises" if any(word in bug["error"] for word in RAISED) else None
    elif differs(correct, bug):
        kind = "differs"
    else:
        grows = name in {"kept_history", "not_detached"} and bug["live"] > correct["live"] + 2
        kind = "grows" if grows else None
    if kind is None:
        return None
    row = {
        "mutant": path.name, "operator": name, "mechanism": OPERATORS[name].mechanism,
        "kind": kind, "planted": planted, "error": bug["error"],
    }  # fmt: skip
    seen = run(path, recorded=True, targets=symptoms(correct, bug))
    if seen is None:
        return {**row, "crash": True}
    lines = [line for _, _, line in seen["findings"]]
    audit = [line for _, line, _ in seen["audit"]]
    return {
        **row,
        "crash": False,
        "changed": seen["error"] != bug["error"] or (bug["error"] is None and differs(bug, seen)),
        "first": bool(lines) and lines[0] in planted,
        "five": any(line in planted for line in lines[:5]),
        "audit": any(line in planted for line in audit[:5]),
        "listed": any(line in planted for line in audit),
        "why": bool(seen.get("why")) and seen["why"][2] in planted,
        "target": seen.get("why"),
        "silent": not lines,
        "findings": seen["findings"][:5],
        "entries": seen["audit"][:12],
    }


_plain = {}


def _correct(program, folder):
    if program not in _plain:
        text = plain(program.read_text(encoding="utf-8"))
        with tempfile.NamedTemporaryFile("w", suffix=".py", dir=folder, delete=False) as file:
            file.write(text)
        _plain[program] = run(Path(file.name), recorded=False)
    return _plain[program]


MEASURES = ("first", "five", "audit", "why", "silent")


def table(rows):
    """Return the shares of each mechanism, and of all bugs, as text."""
    lines = [f"{'':10s} {'count':>6s} " + " ".join(f"{name:>7s}" for name in MEASURES)]
    for mechanism in [*dict.fromkeys(o.mechanism for o in OPERATORS.values()), "all"]:
        mine = [row for row in rows if mechanism in {row["mechanism"], "all"}]
        if mine:
            shares = (sum(bool(row.get(name)) for row in mine) / len(mine) for name in MEASURES)
            numbers = " ".join(f"{share:7.0%}" for share in shares)
            lines.append(f"{mechanism:10s} {len(mine):6d} {numbers}")
    changed = sum(bool(row.get("changed")) for row in rows)
    lines.append(f"changed by the recording: {changed}; crashed: {sum(r['crash'] for r in rows)}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", type=Path, help="default: those of --set")
    parser.add_argument("--set", choices=SETS, default="programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--operators", help="comma-separated; default: all")
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    parser.add_argument("--keep", type=Path, help="folder for the programs with bugs")
    options = parser.parse_args()
    programs = options.programs or sorted(SETS[options.set].glob("*.py"))
    names = options.operators.split(",") if options.operators else sorted(OPERATORS)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="planted-bugs-"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with multiprocessing.get_context("fork").Pool(options.workers, warm_up) as pool:
        waiting = candidates(programs, names, options.seed, folder)
        while len(rows) < options.count:
            batch = [next(waiting) for _ in range(4 * options.workers)]
            for row in pool.imap(examine, batch, chunksize=1):
                if row is not None and len(rows) < options.count:
                    rows.append(row)
                    verdict = next((name for name in MEASURES if row.get(name)), "other")
                    print(f"{row['mutant'][:52]:52s} {row['kind']:8s} {verdict:7s}", flush=True)
    print(f"seed {options.seed}, {len(programs)} programs")
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
