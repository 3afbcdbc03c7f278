"""The examples of the guide embed pictures and reports in sites of Sphinx and MkDocs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import autogradviz

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "integrations.md"


@pytest.fixture
def site(tmp_path):
    """Return a folder with a trace."""
    model = torch.nn.Linear(3, 1)
    with autogradviz.record(model) as trace:
        model(torch.ones(2, 3)).sum().backward()
    trace.save(tmp_path / "step.agv")
    return tmp_path


def block(language, first):
    """Return the block of the guide in some language that begins with a line."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    [found] = [each for each in blocks if each.startswith(first)]
    return found


def build(site, *command):
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=site, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check(built, picture, report):
    page = (built / "index.html").read_text("utf-8")
    assert re.search(rf'<img [^>]*src="{picture}"', page)
    assert f'<iframe src="{report}"' in page
    assert "AddmmBackward0" in (built / picture).read_text("utf-8")
    assert "autogradviz.default.render" in (built / report).read_text("utf-8")


def test_sphinx_shows_the_graph_and_the_report(site):
    (site / "_static").mkdir()
    (site / "conf.py").write_text(block("py", "# conf.py"), encoding="utf-8")
    page = block("rst", ".. image")
    (site / "index.rst").write_text(f"Model\n=====\n\n{page}", encoding="utf-8")
    for _ in range(2):  # the second build replaces the picture and the report
        build(site, "sphinx", "--fail-on-warning", "--quiet", ".", "out")
    check(site / "out", "_images/graph.svg", "_static/report.html")


def test_mkdocs_shows_the_graph_and_the_report(site):
    (site / "docs").mkdir()
    (site / "mkdocs.yml").write_text("site_name: Model\nhooks: [hooks.py]\n", encoding="utf-8")
    (site / "hooks.py").write_text(block("py", "# hooks.py"), encoding="utf-8")
    (site / "docs" / "index.md").write_text(block("md", "!["), encoding="utf-8")
    build(site, "mkdocs", "build", "--strict", "--quiet")
    check(site / "site", "graph.svg", "report.html")
    assert not (site / "docs" / "graph.svg").exists()
