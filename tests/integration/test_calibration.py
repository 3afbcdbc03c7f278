"""Calibration of the confidence levels on real bugs and correct programs."""

from pathlib import Path

import pytest
from interpreters import run_forked

ROOT = Path(__file__).parents[2]


@pytest.mark.slow(reason="records every bug program again; test_bug_variants checks each")
def test_certain_findings_are_correct_and_correct_programs_give_only_hints(tmp_path):
    output = tmp_path / "calibration.md"
    # Other tests check every correct program: test_fingerprints, test_bug_variants.
    code = (
        "import sys; sys.path.insert(0, 'tests/calibration'); import calibrate, pathlib;"
        "calibrate.OUTPUT = pathlib.Path(sys.argv[1]); calibrate.main(every=8)"
    )
    done = run_forked("-c", code, output, cwd=ROOT, timeout=None)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = {}
    for line in output.read_text(encoding="utf-8").splitlines()[2:5]:
        word, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[word] = [int(cell) for cell in cells]
    given, culprit, _, other, _, alarms = rows["certain"]
    assert (given, other, alarms) == (culprit, 0, 0)
    assert given >= 40
    assert rows["likely"][5] == 0
    bugs = sum(row[0] for row in rows.values())
    assert sum(row[1] for row in rows.values()) >= 0.9 * bugs


def test_docs_table_equals_the_measured_table():
    measured = (ROOT / "assets" / "calibration.md").read_text(encoding="utf-8").splitlines()[:5]
    assert "\n".join(measured) in (ROOT / "docs" / "confidence.md").read_text(encoding="utf-8")
