"""Runs tests with this Python and this PyTorch, and notes how many passed.

    python tests/versions/run_tests.py tests/unit tests/integration

The counts go to ``tests/versions/results/``, one file for each pair and each part of the tests.
From them, ``docs/generate_versions.py`` writes the table in ``docs/versions.md``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import torch

from autogradviz.recorder.native import build

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
MOST_FAILURES = 40
LONGEST_NAME = 40  # of the part of a file name that stands for the tests


def run(parts: list[str]) -> dict[str, object]:
    """Run tests and return the counts.

    Args:
        parts: files, folders and options for pytest.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        selection = ["-m", "not slow and not browser"]
        command = [sys.executable, "-m", "pytest", "-q", *selection, f"--junitxml={report}", *parts]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "CI": ""}, check=False)
        if not report.exists():
            sys.exit("pytest wrote no report")
        return counts(ET.parse(report))


def counts(report: ET.ElementTree) -> dict[str, object]:
    """Return the counts of a report."""
    cases = list(report.iter("testcase"))
    failed = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = sorted({f"{case.get('classname')}::{case.get('name')}" for case in failed})
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "failed": len(failed),
        "skipped": len(skipped),
        "failures": names[:MOST_FAILURES],
    }


def file_name(python: str, release: str, part: str) -> str:
    """Return the name of the file of results: a pair and a part have one."""
    words = re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")
    if len(words) > LONGEST_NAME:
        words = f"{words[:LONGEST_NAME]}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"
    return f"python-{python}-torch-{release}-{words}.json"


def main() -> None:
    parts = sys.argv[1:] or ["tests/unit", "tests/integration"]
    engine = os.environ.get("AUTOGRADVIZ_TEST_ENGINE") or "both"
    part = " ".join(parts)
    result = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": f"{platform.system()} {platform.machine()}",
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "native_engine": build.status().usable,
        "engine": engine,
        "tests": part,
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        **run(parts),
    }
    minor = ".".join(platform.python_version_tuple()[:2])
    path = RESULTS / file_name(minor, str(torch.__version__).partition("+")[0], part)
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {result['passed']} passed, {result['failed']} failed")


if __name__ == "__main__":
    main()
