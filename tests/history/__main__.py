"""Ask for the line of bugs in the histories of public repositories: ``python -m tests.history``.

The parent commit of a fix is the bug, the fix is the correct program, and its diff is the label.
The repositories are read from ``--mirror`` or AUTOGRADVIZ_HISTORY_MIRROR, a folder that contains
each as ``owner+name`` or ``owner/name``; none of their code is here. A case counts if its symptom
shows without a recording: in the bug, and not in the fix. For each case the table has

* ``first``: the first finding of ``diagnose()`` is on a line of the label,
* ``audit``: one of the first five entries of ``audit()`` is,
* ``silent``: ``diagnose()`` found nothing,
* ``wrong``: a finding that is "certain" is at another line,
* ``accused``: the fix has a finding above "hint",
* ``changed``: a loss, gradient or exception differs from that of the run without a recording.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from pathlib import Path

import torch

from tests.history.case import case_files, load
from tests.history.mirror import AbsentError, commits, extract, label
from tests.history.run_case import run_case, warm_up

SECONDS = 300

MEASURES = ("first", "audit", "silent", "wrong", "accused", "changed")


def run_version(mirror, path, case, commit, folder, *, recorded=True):
    """Return the results of one commit, run in a process of its own."""
    root, out, errors = folder / "files", folder / "result.pt", folder / "errors"
    extract(mirror, case, commit, root)
    process = multiprocessing.get_context("fork").Process(
        target=_in_child, args=(path, root, out, errors, recorded)
    )
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        msg = f"{path.stem} took more than {SECONDS} seconds"
        raise RuntimeError(msg)
    if process.exitcode:
        raise RuntimeError(errors.read_text() if errors.exists() else "the process died")
    return torch.load(out, weights_only=False)


def _in_child(path, root, out, errors, recorded):
    try:
        torch.save(run_case(path, root, recorded=recorded), out)
    except BaseException:
        errors.write_text(traceback.format_exc())
        os._exit(1)


def examine(mirror, path):
    """Return the row of a case."""
    module = load(path)
    case = module.CASE
    expected = label(mirror, case)
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        bug, fix = (
            run_version(mirror, path, case, commit, Path(folder, name))
            for name, commit in zip(("bug", "fix"), commits(case))
        )
    row = {
        "case": path.stem, "repository": case.repository, "kind": case.kind, "what": case.what,
        "label": {file: sorted(found) for file, found in expected.items()},
        "error": bug["plain"].error, "fix_error": fix["plain"].error,
    }  # fmt: skip
    row["counts"] = symptom_shows(module, bug["plain"], fix["plain"])
    recordings = [name for name in ("default", "chosen") if name in bug]
    scored = recordings[-1]
    row["recordings"] = {name: bug[name] for name in recordings}
    row["recordings_of_fix"] = {name: fix[name] for name in recordings}

    def named(place):
        return place is not None and place[1] in expected.get(place[0], ())

    findings, audit = bug[scored]["findings"], bug[scored]["audit"]
    row["first"] = bool(findings) and named(findings[0]["culprit"])
    row["audit"] = any(named(entry["place"]) for entry in audit[:5])
    row["silent"] = not findings
    row["wrong"] = any(
        f["confidence"] == "certain" and f["culprit"] and not named(f["culprit"]) for f in findings
    )
    row["accused"] = any(
        f["confidence"] != "hint" for name in recordings for f in fix[name]["findings"]
    )
    row["changed"] = not all(run[name]["unchanged"] for name in recordings for run in (bug, fix))
    return row


def check_symptom(mirror, path):
    """Print whether a case runs and counts, without a recording."""
    module = load(path)
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        bug, fix = (
            run_version(mirror, path, module.CASE, commit, Path(folder, name), recorded=False)[
                "plain"
            ]
            for name, commit in zip(("bug", "fix"), commits(module.CASE))
        )
    print(f"{path.stem:34s} {'counts' if symptom_shows(module, bug, fix) else 'NO SYMPTOM'}")
    for name, run in (("bug", bug), ("fix", fix)):
        norms = [round(run.norm(step=n), 6) for n in range(len(run.grads))]
        print(f"    {name}: {run.error[:300]} losses {run.losses} norms {norms} live {run.live}")
    print(f"    label: {label(mirror, module.CASE)}", flush=True)


def symptom_shows(module, bug, fix):
    """Return whether the bug can be seen without a recording, and is absent in the fix."""
    return not fix.error and bool(module.symptom(bug, fix)) and not module.symptom(fix, fix)


def first_finding(row):
    """Return the first finding of a row in a few words."""
    findings = list(row["recordings"].values())[-1]["findings"]
    if not findings:
        return "-"
    first = findings[0]
    place = first["culprit"] or ["", 0, ""]
    return f"{first['slug']} ({first['confidence']}) {Path(place[0]).name}:{place[1]}"


def summary(rows):
    """Return the counts over all rows that count."""
    counted = [row for row in rows if row.get("counts")]
    return {
        "cases": len(counted),
        "repositories": len({row["repository"] for row in counted}),
        **{name: sum(bool(row[name]) for row in counted) for name in MEASURES},
        "left out": [row["case"] for row in rows if not row.get("counts")],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help="names or paths; default: all")
    parser.add_argument("--mirror", default=os.environ.get("AUTOGRADVIZ_HISTORY_MIRROR", ""))
    parser.add_argument(
        "--symptoms", action="store_true", help="only check that the bugs show, without recording"
    )
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    options = parser.parse_args()
    if not options.mirror:
        print("Pass --mirror, or set AUTOGRADVIZ_HISTORY_MIRROR.", file=sys.stderr)
        return 2
    files = {path.stem: path for path in case_files()}
    chosen = [files.get(name) or Path(name) for name in options.cases or files]
    rows = []
    warm_up()
    for path in chosen:
        try:
            if options.symptoms:
                check_symptom(Path(options.mirror), path)
                continue
            row = examine(Path(options.mirror), path)
        except (AbsentError, RuntimeError) as error:
            row = {"case": path.stem, "failed": str(error)}
            print(
                f"{path.stem:34s} not run: {str(error).strip().splitlines()[-1][:200]}", flush=True
            )
        else:
            marks = ",".join(name for name in MEASURES if row[name]) or "-"
            seen = "" if row["counts"] else "NO SYMPTOM "
            print(
                f"{row['case']:34s} {row['kind']:14s} {seen}{marks:16s} {first_finding(row)}",
                flush=True,
            )
        rows.append(row)
    if options.symptoms:
        return 0
    print(json.dumps(summary(rows)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=str), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
