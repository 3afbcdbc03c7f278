"""Fixes of first findings, pasted into the script: the finding is gone, and nothing raises."""

from __future__ import annotations

import re
import runpy

import pytest

import autogradviz

pytestmark = pytest.mark.one_in(4, reason="runs each script twice", in_ci=2)

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
"""

OPTIMIZER_OF_OLD_HEAD = """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
params = [p for p in net.parameters() if p.requires_grad]
opt = torch.optim.SGD(params, lr=0.1)
net[1] = nn.Linear(4, 3)
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(net(torch.randn(5, 4)), torch.arange(5) % 3).backward()
    opt.step()
"""
GROUPS_OF_OLD_HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.body(x).relu())
net = Net()
body = list(net.body.parameters())
head = list(net.head.parameters())
groups = [{"params": body, "lr": 0.01}, {"params": head}]
opt = torch.optim.Adam(groups, lr=0.1)
net.head = nn.Linear(4, 3)
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(net(torch.randn(5, 4)), torch.arange(5) % 3).backward()
    opt.step()
"""
NUMBERS_IN_A_LIST = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.a = nn.Linear(4, 1)
        self.b = nn.Linear(4, 1)
    def forward(self, x):
        h = self.body(x).relu()
        return self.a(h), self.b(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    first, second = net(torch.randn(5, 4))
    kept = [v.item() for v in second.square().flatten() if v < 100]
    aux = torch.tensor(kept).mean()
    loss = first.square().mean() + aux
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
NUMBERS_APPENDED = """
net = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def extra(x):
    values = []
    for row in net[1](x):
        values.append(row.square().sum().item())
    return torch.tensor(values).sum()
for _ in range(3):
    x = torch.randn(5, 4)
    loss = net[0](x).square().mean() + extra(x)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
NORM_USED_LATER = """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(4):
    opt.zero_grad()
    loss = net(torch.randn(5, 4)).square().mean()
    scaler.scale(loss).backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert norm >= 0
"""
CLEARED_IN_EACH_PART = """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(8):
    opt.zero_grad()
    loss = net(torch.randn(5, 4)).square().mean() / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        opt.step()
"""
WRONG_FEATURES = """
class Net(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.fc = nn.Linear(2 * size * size, 3)
    def forward(self, x):
        h = self.conv(x).relu()
        h = h.flatten(1)
        return self.fc(h)
net = Net(size=8)
net(torch.randn(2, 1, 6, 6)).sum().backward()
"""
TWO_LAYERS_ON_A_LINE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(9, 4); self.fc2 = nn.Linear(4, 2)
    def forward(self, x):
        return self.fc2(self.fc1(x).relu())
net = Net()
net(torch.randn(2, 6)).sum().backward()
"""
TWO_LAYERS_IN_A_STATEMENT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 4), nn.Linear(5, 2)
    def forward(self, x):
        return self.fc2(self.fc1(x).relu())
net = Net()
net(torch.randn(2, 6)).sum().backward()
"""
METER = """
class Meter:
    def __init__(self):
        self.values = {}
    def update(self, **words):
        for name, value in words.items():
            self.values.setdefault(name, []).append(value)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
meter = Meter()
for _ in range(5):
    loss = net(torch.randn(5, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    meter.update(loss=loss)
"""
DETACHED = """
net = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 1)])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    hidden = net[0](torch.randn(5, 4)).relu().detach()
    loss = net[1](hidden).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRITTEN_IN_PLACE = """
w = torch.randn(3, requires_grad=True)
y = w.exp()
y += 1
y.sum().backward()
"""
NOT_CLEARED = """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    loss = net(torch.randn(5, 4)).square().mean()
    loss.backward()
    opt.step()
"""
CLEARED_BEFORE_STEP = """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    loss = net(torch.randn(5, 4)).square().mean()
    loss.backward()
    opt.zero_grad()
    opt.step()
"""
CLIPPED_AFTER_STEP = """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    opt.zero_grad()
    loss = net(torch.randn(5, 4)).square().mean()
    loss.backward()
    opt.step()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    assert norm >= 0
"""
LAYERS_IN_A_LIST = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(5, 4)).square().mean().backward()
    opt.step()
"""
LOSS_OF_PROBABILITIES = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    probabilities = net(torch.randn(5, 4)).softmax(-1)
    loss = F.cross_entropy(probabilities, torch.arange(5) % 3)
    loss.backward()
    opt.step()
"""
STATE_CARRIED = """
cell = nn.GRUCell(4, 4)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
h = torch.zeros(2, 4)
for _ in range(3):
    h = cell(torch.randn(2, 4), h)
    loss = h.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SQUARE_ROOT_OF_ZERO = """
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    h = net(torch.randn(2, 4)).relu() * 0
    d = torch.sqrt(h.sum(1))
    loss = d.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
BROADCAST_TARGET = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = F.mse_loss(net(torch.randn(5, 4)), torch.randn(5))
    loss.backward()
    opt.step()
"""
SHAPE_CHANGED_BEFORE_BACKWARD = """
from torch.utils.checkpoint import checkpoint
class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.width = 4
    def forward(self, x):
        return self.fc(x)[:, : self.width].sin().exp()
net = Cut()
loss = checkpoint(net, torch.randn(5, 4), use_reentrant=False).sum()
net.width = 2
loss.backward()
"""
EVAL_BEFORE_BACKWARD = """
from torch.utils.checkpoint import checkpoint
net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
loss = checkpoint(net, torch.randn(5, 4), use_reentrant=False, early_stop=False).sum()
net.eval()
loss.backward()
"""
WRITTEN_BEFORE_RECOMPUTATION = """
from torch.utils.checkpoint import checkpoint
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
loss = checkpoint(net, torch.randn(5, 4), use_reentrant=False).sum()
with torch.no_grad():
    net[0].weight.mul_(2)
loss.backward()
"""
DTYPE_OF_CONTEXT = """
from contextlib import contextmanager
from torch.utils.checkpoint import checkpoint
@contextmanager
def default(dtype):
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(torch.float32)
def product(x):
    return (x @ torch.ones(4, 4)).exp()
x = torch.rand(2, 4, dtype=torch.float64, requires_grad=True)
with default(torch.float64):
    y = checkpoint(product, x, use_reentrant=False)
y.sum().backward()
"""
OTHER_CONTEXTS = """
from torch.utils.checkpoint import checkpoint
def contexts():
    return torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False)
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
x = torch.randn(5, 4)
checkpoint(net, x, use_reentrant=False, context_fn=contexts).sum().backward()
"""
PROGRAMS = {name.lower(): text for name, text in list(globals().items())
            if name.isupper() and name != "HEAD" and isinstance(text, str)}  # fmt: skip
_AFTER = re.compile(r"  # after (?:line )?(?:\S+?:)?(\d+)")


def run(path):
    """Return the trace of a script, and the exception that ended it."""
    try:
        with autogradviz.record() as trace:
            runpy.run_path(str(path))
    except RuntimeError as error:
        return trace, error
    return trace, None


def pasted(text, finding):
    """Return a script with a fix in the place that its comments name, or of the culprit."""
    lines = text.split("\n")
    here = finding.culprit.lineno
    new, changed, below = [], {}, {}
    for line in finding.fix.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        after, at = _AFTER.search(line), re.search(r"  # at (?:line )?(?:\S+?:)?(\d+)", line)
        if after:
            below.setdefault(int(after[1]), []).append(line)
        elif at:
            changed[int(at[1])] = [line]
        else:
            new.append(line)
    present = {each.strip(): number for number, each in enumerate(lines, 1)}
    if len(new) > 1:  # statements of the program in another order: from the first of them on
        found = [present[e] for e in (each.split("  #")[0].strip() for each in new) if e in present]
        anchor = max(found, default=here)
        for number in {*found, here}:
            changed[number] = []
        changed[anchor] = new
    elif new:
        changed[here] = new
    result = []
    for number, line in enumerate(lines, 1):
        indent = line[: len(line) - len(line.lstrip())]
        result += [indent + each for each in changed.get(number, [line.lstrip()])]
        result += [indent + each for each in below.get(number, [])]
    return "\n".join(result)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pasted_fix_removes_the_finding(name, tmp_path):
    path = tmp_path / "train.py"
    text = HEAD + PROGRAMS[name]
    path.write_text(text)
    trace, _ = run(path)
    first = trace.diagnose()[0]
    fixed = tmp_path / "fixed.py"
    fixed.write_text(pasted(text, first))
    again, error = run(fixed)
    assert error is None, f"{first}\n{fixed.read_text()}"
    slugs = [each.slug for each in again.diagnose()]
    assert first.slug not in slugs, f"{first}\n{fixed.read_text()}"
