"""The first hour: scripts with the mistakes of newcomers, and the examples of commands."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch
from interpreters import run_forked, run_new
from torch import nn

import autogradviz
from autogradviz.cli.subcommand_and_exit_codes import EXAMPLES

pytestmark = pytest.mark.one_in(2, reason="runs commands", in_ci=1)

SCRIPTS = Path(__file__).parent / "first_hour"
MARK = "# NAMED"
LINES = 12
"""Lines that a reader needs until the fix, at most."""
VIEWER = Path(__file__).parents[2] / "docs" / "viewer.md"

TRAIN = """
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    return model(torch.ones(2, 3)).square().sum()
if __name__ == "__main__":
    step().backward()
    optimizer.step()
"""
FAILS = """
import torch
x = torch.ones(3, requires_grad=True)
y = x.exp()
y.mul_(2)
y.sum().backward()
"""


def autogradviz_in(folder, *arguments):
    return run_forked("-m", "autogradviz", *arguments, cwd=folder)


@pytest.mark.one_in(4, reason="runs each script", in_ci=1)
@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_run_names_the_line_of_a_mistake_and_a_fix_at_once(script, tmp_path):
    source = script.read_text(encoding="utf-8")
    marked = next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith(MARK))
    (tmp_path / script.name).write_text(source, encoding="utf-8")
    printed = autogradviz_in(tmp_path, "run", script.name).stderr.splitlines()
    (culprit,) = [n for n, line in enumerate(printed) if line.lstrip().startswith("culprit")]
    assert f"{script.name}:{marked}" in printed[culprit]
    title = max(n for n in range(culprit) if printed[n].startswith("autogradviz:"))
    fix = next(n for n, line in enumerate(printed) if line.lstrip().startswith("fix"))
    assert title < culprit < fix <= title + LINES


COMPILED = """
import torch
step = torch.compile(lambda x: x.sin().exp().sum(), backend="aot_eager")
step(torch.ones(3, requires_grad=True)).backward()
"""


READS = TRAIN.replace("import torch", "import sys, torch\nassert '--all' in sys.argv")


@pytest.mark.parametrize(("script", "is_named"), [(TRAIN, True), (READS, False)])
def test_options_after_a_script_that_reads_none_are_named(script, is_named, tmp_path):
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = autogradviz_in(tmp_path, "run", "train.py", "--all", "5")
    note = "autogradviz: --all went to train.py; options of autogradviz run come before the script"
    assert (note in done.stderr) == is_named
    assert "assert" not in done.stderr.lower()


@pytest.mark.one_in(3, reason="runs each command", in_ci=1)
@pytest.mark.parametrize("name", ["check", "plan", "reproduce", "mcp", "run"])
def test_example_of_a_command_that_needs_pytorch_runs(name, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "fails.py").write_text(FAILS, encoding="utf-8")
    autogradviz_in(tmp_path, "run", "-o", "step.agv", "fails.py")
    done = autogradviz_in(tmp_path, *shlex.split(EXAMPLES[name])[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout or done.stderr or name == "mcp"


@pytest.mark.ci(reason="compiles in a new interpreter")
def test_example_of_a_command_that_reads_logs_of_a_compiler_runs(tmp_path):
    (tmp_path / "train.py").write_text(COMPILED, encoding="utf-8")
    run_new("train.py", cwd=tmp_path, env={**os.environ, "TORCH_TRACE": str(tmp_path / "logs")})
    example = shlex.split(EXAMPLES["import-compile-trace"])[1:]
    done = autogradviz_in(tmp_path, *example)
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob("*.agv")
    assert "sin" in autogradviz.load(written).compiled_graph().svg()


def test_example_of_the_command_that_follows_a_recording_runs(tmp_path):
    example = shlex.split(EXAMPLES["watch"])[1:]
    environment = {**os.environ, "BROWSER": "true"}  # the program that is to be a browser
    watching = subprocess.Popen(
        [sys.executable, "-m", "autogradviz", *example],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with urllib.request.urlopen(watching.stdout.readline().strip()) as page:
            assert b"<html" in page.read()
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate()
    assert watching.returncode == 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x):
        return self.mix(x).softmax(-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_the_example_of_the_viewer_runs():
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", VIEWER.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(4):
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
    names = {"trace": trace}
    exec(example, names)
    assert names["widget"].color_by == "bytes"
