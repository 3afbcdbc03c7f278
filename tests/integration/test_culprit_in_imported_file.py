"""Culprit lines in files that ran no operator, so that no stack contains them."""

import sys
import textwrap

import pytest

import autogradviz
from autogradviz.diagnose.source.files_imported_by_user import with_imported

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from {package}.schedules import Schedule

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.schedule = nn.Linear(4, 4), Schedule()

    def forward(self, x):
        return torch.tanh(self.fc(x) * (1.0 + self.schedule.steps))

def run(early):
    net = Net()
    loss = checkpoint(net, torch.ones(2, 4), use_reentrant=False).sum()
    if early:
        net.schedule.step()
    loss.backward()
"""
SCHEDULES = """
class Schedule:
    def __init__(self):
        self.steps = 0

    def step(self):
        self.steps += 1
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return the module of a program, and the file of its schedule."""
    package = tmp_path / "steps_of_two_files"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "schedules.py").write_text(SCHEDULES)
    (tmp_path / "trains_with_a_schedule.py").write_text(PROGRAM.format(package=package.name))
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("trains_with_a_schedule")
    yield module, package / "schedules.py"
    for name in ("trains_with_a_schedule", package.name, f"{package.name}.schedules"):
        sys.modules.pop(name, None)


def test_line_in_an_imported_file_without_operators_is_reported(program):
    module, schedules = program
    with autogradviz.record(fingerprints=True) as trace:
        module.run(early=True)
    culprit = trace.diagnose()[0].culprit
    assert (culprit.filename, culprit.text) == (str(schedules), "self.steps += 1")


def test_same_files_without_the_early_step_give_no_finding(program):
    module, _ = program
    with autogradviz.record(fingerprints=True) as trace:
        module.run(early=False)
    assert not trace.diagnose()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import near", ["near.py"]),
        ("import pack.inner", ["pack/inner.py"]),
        ("from pack import inner", ["pack/__init__.py", "pack/inner.py"]),
        ("def late():\n    from .near import thing", ["near.py"]),
        ("from . import near", ["near.py"]),
        ("import torch, json, missing", []),
        ("import near, main", ["near.py"]),  # each file is listed once
    ],
)
def test_imports_are_resolved_in_the_folder_of_the_file(tmp_path, text, expected):
    (tmp_path / "pack").mkdir()
    for name in ("near.py", "pack/__init__.py", "pack/inner.py"):
        (tmp_path / name).write_text("import main" if name == "near.py" else "")
    main = tmp_path / "main.py"
    main.write_text(textwrap.dedent(text))
    found = with_imported([str(main)])
    assert found[0] == str(main)
    assert set(found[1:]) - {str(tmp_path / "__init__.py")} == {
        str(tmp_path / name) for name in expected
    }


def test_relative_import_ascends_one_folder_per_dot(tmp_path):
    deep = tmp_path / "project" / "models"
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent):
        (folder / "__init__.py").touch()
    (deep.parent / "state.py").touch()
    (deep / "net.py").write_text("from ..state import STATE\nimport project.state")
    assert with_imported([str(deep / "net.py")])[1:] == (str(deep.parent / "state.py"),)


def test_imports_of_an_installed_package_are_not_followed(tmp_path):
    package = tmp_path / "site-packages" / "package"
    package.mkdir(parents=True)
    (package / "net.py").write_text("from . import inner")
    (package / "inner.py").touch()
    (tmp_path / "train.py").write_text("import near")
    (tmp_path / "near.py").touch()
    ran = [str(tmp_path / "train.py"), str(package / "net.py")]
    assert with_imported(ran) == (*ran, str(tmp_path / "near.py"))
    assert with_imported(ran[1:]) == (ran[1], str(package / "inner.py"))


KEEPER = """
class Keeper:
    def __init__(self):
        self.state = None

    def take(self):
        return self.state

    def add(self, state):
        hidden, cell = state
        self.state = hidden.detach(), cell
"""
CHUNKS = """
import torch
from torch import nn
from keeps_a_state import Keeper

def run():
    lstm, keeper = nn.LSTM(3, 4), Keeper()
    for _ in range(2):
        out, state = lstm(torch.rand(5, 2, 3), keeper.take())
        keeper.add(state)
        out.sum().backward()
"""


def test_state_that_a_class_of_another_file_stores_is_named_there(tmp_path, monkeypatch):
    (tmp_path / "keeps_a_state.py").write_text(KEEPER)
    (tmp_path / "trains_in_chunks.py").write_text(CHUNKS)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("trains_in_chunks")
    try:
        with pytest.raises(RuntimeError, match="a second time"), autogradviz.record() as trace:
            module.run()
    finally:
        for name in ("trains_in_chunks", "keeps_a_state"):
            sys.modules.pop(name, None)
    finding = trace.diagnose()[0]
    assert finding.culprit.filename == str(tmp_path / "keeps_a_state.py")
    assert finding.culprit.text == "self.state = hidden.detach(), cell"


NETS = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x).tanh())

    def new_head(self):
        self.head = nn.Linear(4, 2)
"""
TUNES = """
import torch
from nets_with_heads import Net

class Tuner:
    def __init__(self):
        self.net = Net()
        self.optimizer = self.make_optimizer()
        self.net.new_head()

    def make_optimizer(self):
        return torch.optim.SGD(list(self.net.parameters()), lr=0.1)

def run():
    tuner = Tuner()
    for _ in range(3):
        tuner.optimizer.zero_grad()
        tuner.net(torch.rand(4, 3)).square().mean().backward()
        tuner.optimizer.step()
"""


def test_a_method_that_replaces_parameters_of_an_optimizer_is_named_where_it_is_called(
    tmp_path, monkeypatch
):
    (tmp_path / "nets_with_heads.py").write_text(NETS)
    (tmp_path / "tunes_a_head.py").write_text(TUNES)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("tunes_a_head")
    try:
        with autogradviz.record() as trace:
            module.run()
    finally:
        for name in ("tunes_a_head", "nets_with_heads"):
            sys.modules.pop(name, None)
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.culprit.text) == ("parameter-not-updated", "self.net.new_head()")
