"""The patches that ``fit`` writes, applied to a copy of the program and run."""

from __future__ import annotations

import importlib.util
import subprocess
from textwrap import indent

import pytest
import torch

import autogradviz
from tests.allocated_peak import allocated_peak

pytestmark = pytest.mark.one_in(2, reason="runs each patch", in_ci=1)

HEAD = '''"""A program."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, scale=1.0):
        return x + scale * self.down(F.gelu(self.up(self.norm(x))))

'''
STEP = """

def step():
    torch.manual_seed(0)
    model = Net()
    model(torch.rand(512, 96)).square().mean().backward()
    return model
"""
NETS = {
    "loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
""",
    "enumerate": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(6)])

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = x / (number + 1) + layer(x, 0.5)
        return x
""",
    "keyword": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x
""",
    "part": """
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Block()

    def forward(self, x):
        return torch.tanh(self.mlp(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[Outer() for _ in range(6)])

    def forward(self, x):
        return self.layers(x)
""",
}
SHARES = (0.05, 0.35, 0.65, 0.95)


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.step


def gradients(model):
    return [each.grad for each in model.parameters()]


def changed_step(folder, patch):
    """Return the step of the program with a patch."""
    changed = folder / "changed"
    changed.mkdir()
    (changed / "program.py").write_text((folder / "program.py").read_text())
    subprocess.run(["git", "apply"], input=patch, text=True, cwd=changed, check=True)
    return load(changed / "program.py")


@pytest.mark.one_in(4, reason="runs each patch", in_ci=1)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", ["loop", "enumerate", "keyword"])
def test_patch_meets_the_budget_and_changes_no_gradient(name, share, tmp_path):
    (tmp_path / "program.py").write_text(HEAD + NETS[name] + STEP)
    step = load(tmp_path / "program.py")
    plan = autogradviz.plan(step)
    least, peak = plan.fit(1).predicted_peak, plan.memory_by_kind().peak.total
    fit = plan.fit(round(least + share * (peak - least)))
    assert fit.fits
    changed = changed_step(tmp_path, fit.patch)
    assert allocated_peak(changed) <= fit.budget
    assert allocated_peak(step) > fit.budget
    for before, after in zip(gradients(step()), gradients(changed()), strict=True):
        assert torch.equal(before, after)


def test_line_of_all_modules_gets_no_patch_for_some_of_them(tmp_path):
    (tmp_path / "program.py").write_text(HEAD + NETS["part"] + STEP)
    step = load(tmp_path / "program.py")
    plan = autogradviz.plan(step)
    some = plan.fit(0.9 * plan.memory_by_kind().peak.total)
    assert (len(some.checkpoint), some.patch) == (1, "")
    assert indent(some.code, "  ").rstrip() in str(some)


def test_patch_imports_checkpoint_only_if_the_file_does_not(tmp_path):
    line = "from torch.utils.checkpoint import checkpoint\n"
    text = HEAD.replace("import torch\n", f"import torch\n{line}")
    (tmp_path / "program.py").write_text(text + NETS["loop"] + STEP)
    patch = autogradviz.plan(load(tmp_path / "program.py")).fit(1).patch
    assert [each for each in patch.splitlines() if each.startswith("+") and "import" in each] == []


def test_call_of_a_sequential_is_no_line_to_change(tmp_path):
    net = NETS["part"].replace("Outer() for", "Block() for")
    (tmp_path / "program.py").write_text(HEAD + net + STEP)
    fit = autogradviz.plan(load(tmp_path / "program.py")).fit(1)
    assert fit.checkpoint[0] == "Net.layers.0"
    assert (fit.before, fit.after, fit.patch) == ("return self.layers(x)", "", "")


def test_file_that_has_changed_gets_no_patch(tmp_path):
    (tmp_path / "program.py").write_text(HEAD + NETS["loop"] + STEP)
    plan = autogradviz.plan(load(tmp_path / "program.py"))
    (tmp_path / "program.py").write_text(HEAD + "\n" + NETS["loop"] + STEP)
    assert plan.fit(1).patch == ""
