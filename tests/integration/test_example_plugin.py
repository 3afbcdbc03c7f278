"""The example of a plug-in is built, and used as an installed package."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from interpreters import run_new

from autogradviz.explanations.read_pages import read_page

pytestmark = pytest.mark.one_in(2, reason="starts interpreters", in_ci=1)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "plugin"
PAGE = EXAMPLE / "loss_checks" / "pages" / "softmax-applied-twice.md"
BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
PRINT = """
trace.save("step.agv")
for finding in trace.diagnose():
    print(finding.slug, finding.confidence, finding.culprit.text)
trace.export("x.csv")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a folder with the installed example; an installer unpacks a wheel in the same way."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=EXAMPLE, capture_output=True, text=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    with zipfile.ZipFile(folder / built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def run(site, tmp_path):
    """Return a function that runs Python in a process that has the package."""

    def run(*arguments, enabled="1"):
        path = os.pathsep.join([str(site), str(ROOT)])
        environment = os.environ | {"PYTHONPATH": path, "AUTOGRADVIZ_PLUGINS": enabled}
        return run_new(*arguments, cwd=tmp_path, env=environment)

    return run


@pytest.mark.ci(reason="installs a package")
def test_installed_example_adds_a_finding_its_page_and_a_format(run, tmp_path):
    page = read_page(PAGE)
    (tmp_path / "example.py").write_text(page.example + PRINT)
    ran = run("example.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    culprit = next(line for line in page.example.splitlines() if "# <-- named" in line)
    assert ran.stdout == f"softmax-applied-twice likely {culprit.strip()}\n"

    explained = run("-m", "autogradviz", "explain", "softmax-applied-twice")
    assert explained.stdout == f"{page}\n"

    exported = run("-m", "autogradviz", "export", "step.agv", "-f", "operator-counts", "-o", "y")
    assert (exported.returncode, exported.stderr) == (0, "")
    assert (tmp_path / "y").read_text() == (tmp_path / "x.csv").read_text()
    assert "_softmax,1\n" in (tmp_path / "y").read_text()
    listed = run("-m", "autogradviz", "export", "--help").stdout
    assert '"operator-counts" (.csv): how often each operator ran' in listed


@pytest.mark.ci(reason="installs a package")
def test_installed_example_is_not_used_if_plugins_are_off(run, tmp_path):
    (tmp_path / "example.py").write_text(read_page(PAGE).example + PRINT)
    ran = run("example.py", enabled="0")
    assert "softmax-applied-twice" not in ran.stdout
    assert "x.csv has none of the suffixes" in ran.stderr
    explained = run("-m", "autogradviz", "explain", "softmax-applied-twice", enabled="0")
    assert explained.returncode == 2
    assert "no finding or error is called 'softmax-applied-twice'" in explained.stderr
