"""Measure ``autogradviz.check``: ``python -m tests.planted_bugs.checks --seed N --count M``.

Plants bugs of value kinds in the programs of this folder and checks each. A bug is detected if an
entry fails or differs that the correct program does not have; it is placed if that entry has its
line, or the line of a call of the module that has it. Then checks correct programs: those of this
folder, the references of ``tests/cases``, and the programs of ``tests/integration``; an entry that
fails there is a false failure.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch

import autogradviz
from tests.calibration.calibrate import CASES, WRONG, load
from tests.planted_bugs.__main__ import SETS, candidates
from tests.planted_bugs.operators import plain
from tests.planted_bugs.run_program import differs, run, warm_up

VALUE_KINDS = (
    "detach", "data", "new_from_list", "through_numpy", "new_leaf", "rounded", "no_grad",
    "hook_halves", "hook_zeroes", "wrong_backward", "write_input",
    "root_of_zero", "overflow", "cancels", "changed_by_recomputation",
)  # fmt: skip
ALSO_WRONG = ("mutation_allowed_on_views",)
"""PyTorch does not notice writes into views of a saved tensor there; see the gradients."""
SECONDS = 90


def forked(work):
    """Run a function in a forked process, and return its result; None if it died or hung."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(2 * SECONDS)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        try:
            text = json.dumps(work())
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            text = ""
        with os.fdopen(write, "w") as stream:
            stream.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def checked(work):
    """Return relation, outcome, statement, and all lines that an entry names, for each entry."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = autogradviz.check(work, seconds=SECONDS)
    return [
        [e.relation, e.outcome, e.statement, str(e.location or ""), list(e.details)] for e in found
    ]


def _main_of(path):
    def work():
        spec = importlib.util.spec_from_file_location("program", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["program"] = module
        spec.loader.exec_module(module)
        return checked(module.main)

    return forked(work)


def _key(entry, lines):
    """Return an entry without what a change of other lines changes."""
    place = entry[3].rpartition(":")[2].partition(",")[0]
    text = lines[int(place) - 1].strip() if place.isdigit() and int(place) <= len(lines) else ""
    return entry[0], entry[1], text


def new_entries(path, correct_path, entries, correct):
    """Return the entries of a mutant that its program does not have."""
    mine, theirs = path.read_text().splitlines(), correct_path.read_text().splitlines()
    known = {_key(entry, theirs) for entry in correct}
    return [e for e in entries if e[1] in {"fails", "differs"} and _key(e, mine) not in known]


def spans(path, planted):
    """Return the planted lines and those of the innermost functions that contain them."""
    lines = set(planted)
    functions = [
        range(node.lineno, node.end_lineno + 1)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    for line in planted:
        around = [span for span in functions if line in span]
        lines |= set(min(around, key=len, default=()))
    return lines


def places(entries, path):
    """Return the lines of a file that entries name, in their order."""
    words = [
        word for e in entries for text in (e[3], *e[4]) for word in text.replace(",", " ").split()
    ]
    found = [word.rstrip(":").rpartition(":") for word in words if path.name in word]
    return list(dict.fromkeys(int(line) for _, _, line in found if line.isdigit()))


def planted(options, folder):
    """Yield a row for each planted bug of a value kind that changes the program."""
    programs = sorted(path for name in options.sets.split(",") for path in SETS[name].glob("*.py"))
    correct = {}
    for path in programs:
        copy = folder / f"correct_{path.name}"
        copy.write_text(plain(path.read_text()))
        correct[path] = (copy, run(copy, recorded=False), _main_of(copy))
    count = 0
    for path, name, program, lines in candidates(programs, VALUE_KINDS, options.seed, folder):
        copy, values, entries = correct[program]
        bug = run(path, recorded=False)
        if bug is None or bug["error"] or not differs(values, bug):
            continue
        found = _main_of(path)
        new = new_entries(path, copy, found or [], entries or [])
        named, near = places(new, path), spans(path, lines)
        yield {
            "mutant": path.name, "operator": name, "planted": lines, "crash": found is None,
            "detected": bool(new), "line": bool(set(named[:5]) & set(lines)),
            "placed": bool(set(named[:5]) & near), "entries": found,
        }  # fmt: skip
        count += 1
        if count == options.count:
            return


def correct_programs():
    """Yield name and work of each correct program."""
    for path in sorted(path for folder in SETS.values() for path in folder.glob("*.py")):
        yield path.stem, lambda path=path: load(path).main()
    for path in CASES:
        yield path.stem, load(path).reference
    sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
    import programs
    import training_loops  # noqa: F401 - registers programs

    for name, work in programs.PROGRAMS.items():
        if name not in {*WRONG, *ALSO_WRONG}:
            yield name, work


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--sets", default="programs,kept_back")
    parser.add_argument("--every", type=int, default=1, help="check every nth correct program")
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    parser.add_argument("--keep", type=Path, help="folder for the programs with bugs")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="planted-bugs-"))
    folder.mkdir(parents=True, exist_ok=True)
    warm_up()
    rows, clean = [], []
    for row in planted(options, folder) if options.count else ():
        rows.append(row)
        verdict = next((word for word in ("crash", "line", "placed", "detected") if row[word]), "-")
        print(f"{row['mutant'][:52]:52s} {verdict}", flush=True)
    for word in ("detected", "placed", "line"):
        print(f"{word}: {sum(row[word] for row in rows)} of {len(rows)}")
    for name, work in list(correct_programs())[:: options.every] if options.every else ():
        entries = forked(lambda work=work: checked(work))
        applied = [e for e in entries or () if e[1] != "not applied"]
        clean.append({"program": name, "entries": entries})
        failed = [e for e in applied if e[1] == "fails"]
        if failed or entries is None:
            print(f"{name}: {failed or 'died'}", flush=True)
    outcomes = Counter((e[0], e[1]) for row in clean for e in row["entries"] or ())
    for (relation, outcome), count in sorted(outcomes.items()):
        print(f"{relation:14s} {outcome:12s} {count}")
    wrong = sum(any(e[1] == "fails" for e in row["entries"] or ()) for row in clean)
    print(f"false failures: {wrong} of {len(clean)} correct programs")
    if options.json:
        options.json.write_text(json.dumps([rows, clean], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
