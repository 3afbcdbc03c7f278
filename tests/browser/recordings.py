"""Scenes of small training steps, for the viewer."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from make_scene import Box, scene_of


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, depth=3, *, checkpointed=False, writes=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block(8) for _ in range(depth))
        self.head = nn.Linear(8, 4)
        self.checkpointed = checkpointed
        self.writes = writes

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        scores = torch.softmax(self.head(x), dim=-1)
        if self.writes:
            scores.mul_(2)
        return scores.select(1, 0).sum()  # the sum of all has a gradient that is zero or a rounding


class Growing(nn.Module):
    """Runs different operators each time, which checkpoint does not allow."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.seen = []

    def forward(self, x):
        y = self.linear(x)
        if self.seen:
            y = torch.cat([self.seen[-1], y])
        self.seen.append(y.detach())
        return torch.exp(y)


def reproducible(make):
    """Cache a scene; the kernel of a notebook and the test compute the same one."""

    @cache
    @wraps(make)
    def make_seeded(*arguments, **options):
        torch.manual_seed(0)
        return make(*arguments, **options)

    return make_seeded


def record(model, step, error=()):
    trace = None
    try:
        with autogradviz.record(model) as trace:
            step()
    except error:
        pass
    return trace._viewer_scene


@reproducible
def plain():
    model = Stack()
    return record(model, lambda: model(torch.ones(2, 8)).backward())


@reproducible
def growing_steps():
    """Return three steps with larger and larger batches."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters())

    def steps():
        for size in (8, 16, 32):
            model(torch.ones(size, 8)).backward()
            optimizer.step()
            optimizer.zero_grad()

    return record(model, steps)


@reproducible
def two_losses():
    """Return a step whose second loss is of other rows and holds less."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters())

    def step():
        first, second = model(torch.ones(32, 8)), model(torch.ones(16, 8))
        first.backward()
        second.backward()
        optimizer.step()

    return record(model, step)


@reproducible
def equal_steps(*, memory=False):
    """Return three steps that hold the same bytes."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters())
    with autogradviz.record(model, memory=memory) as trace:
        for _ in range(3):
            loss = model(torch.ones(8, 8))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace._viewer_scene


def all_memory():
    """Return the same steps, with all memory."""
    return equal_steps(memory=True)


@reproducible
def checkpointed():
    model = Stack(2, checkpointed=True)
    return record(model, lambda: model(torch.ones(2, 8, requires_grad=True)).backward())


@reproducible
def checkpointed_steps():
    model = Stack(2, checkpointed=True)
    optimizer = torch.optim.SGD(model.parameters())

    def steps():
        for _ in range(3):
            model(torch.ones(2, 8, requires_grad=True)).backward()
            optimizer.step()
            optimizer.zero_grad()

    return record(model, steps)


@reproducible
def reentrant():
    model = nn.Sequential(Block(8), Block(8))

    def step():
        x = torch.ones(2, 8, requires_grad=True)
        for block in model:
            x = checkpoint(block, x, use_reentrant=True)
        x.sum().backward()

    return record(model, step)


@reproducible
def failing():
    model = Stack(writes=True)
    return record(model, lambda: model(torch.ones(2, 8)).backward(), RuntimeError)


@reproducible
def with_story():
    """Return a failing step with the story of its finding, whose times differ as they are shown."""
    import time  # line numbers of the models above are searched for

    model = Stack()

    def step():
        scores = torch.softmax(model.head(torch.ones(2, 8)), dim=-1)
        time.sleep(0.005)
        scores.mul_(2)
        time.sleep(0.005)
        scores.sum().backward()

    scene = record(model, step, RuntimeError)
    assert scene.stories
    return scene


@reproducible
def adversarial():
    """Return two rounds of two optimizers, which are two steps."""
    nets = nn.ModuleDict({"generator": nn.Linear(2, 4), "critic": nn.Linear(4, 1)})
    optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in nets.items()}

    def step():
        for _ in range(2):
            fake = nets["generator"](torch.ones(3, 2))
            for name, given in (("critic", fake.detach()), ("generator", fake)):
                optimizers[name].zero_grad()
                nets["critic"](given).square().mean().backward()
                optimizers[name].step()

    return record(nets, step)


@reproducible
def diverging():
    model = Growing()
    x = torch.ones(2, 8, requires_grad=True)

    def step():
        checkpoint(model, x, use_reentrant=False).sum().backward()

    return record(model, step, RuntimeError)


class Gated(nn.Module):
    """A gate that gets no gradient, and a layer that is not called."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.gate = nn.Linear(4, 1)
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        features = torch.tanh(self.encoder(x))
        scale = torch.sigmoid(self.gate(features)).detach()
        return self.head(features * scale)


def audited_trace():
    """Return three steps without zero_grad() that keep their outputs."""
    torch.manual_seed(0)
    model = Gated()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    with autogradviz.record(model) as trace:
        for _ in range(3):
            output = model(torch.ones(2, 4))
            kept.append(output)
            output.square().mean().backward()
            optimizer.step()
    return trace


@reproducible
def audited():
    return audited_trace()._viewer_scene


@reproducible
def retained():
    """Return three steps that keep their graphs, of blocks whose backward ends a step."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).backward(retain_graph=True)
            optimizer.step()

    return record(model, step)


class Dense(nn.Module):
    """Every layer reads all previous results: many lines over many rows."""

    def __init__(self, depth=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))

    def forward(self, x):
        seen = [x]
        for layer in self.layers:
            query, key = layer(sum(seen)), torch.tanh(seen[-1])
            seen.append(torch.sigmoid(query @ key.T) @ seen[0])
        return sum(map(torch.sum, seen))


@reproducible
def dense():
    model = Dense()
    x = torch.ones(2, 8, requires_grad=True)
    return record(model, lambda: model(x).backward())


@reproducible
def empty():
    return record(None, lambda: None)


@reproducible
def deep():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(600)))
    return record(model, lambda: model(torch.ones(1, 2)).sum().backward())


@reproducible
def long_chain():
    def step():
        x = torch.ones(2, requires_grad=True)
        for _ in range(1_300):
            x = torch.sin(x)
        x.sum().backward()

    return record(None, step)


@reproducible
def large():
    """Return a scene of 2,000 nodes in which every group is open."""
    boxes = [Box(1, "exp")]
    for i in range(2, 2001):
        to = [i - 1] + ([i - 7] if i % 11 == 0 else [])
        boxes.append(Box(i, "relu" if i % 3 else "mm", to=to, module=f"net.part{i // 40}"))
    scene = scene_of(*boxes)
    return replace(scene, groups=tuple(replace(group, open=True) for group in scene.groups))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        att = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
        return self.proj(att @ v)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Every second layer is checkpointed."""

    def __init__(self, width=16, depth=4):
        super().__init__()
        self.wte = nn.Embedding(32, width)
        self.h = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, 32)

    def forward(self, tokens):
        x = self.wte(tokens)
        for i, layer in enumerate(self.h):
            x = checkpoint(layer, x, use_reentrant=False) if i % 2 == 0 else layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


@reproducible
def compiled_hooks():
    """Return the scene of a compiled function whose saved values inlined hooks pack."""
    torch.compiler.reset()
    pair = (
        torch.fx.symbolic_trace(lambda t: t.to(torch.float16)),
        torch.fx.symbolic_trace(lambda t: t.to(torch.float32)),
    )
    model = torch.nn.Linear(8, 8)
    step = torch.compile(lambda x: model(x).exp().sin().sum(), backend="aot_eager")

    def run():
        with torch.autograd.graph.saved_tensors_hooks(*pair):
            step(torch.rand(4, 8)).backward()

    return record(model, run)


@reproducible
def compiled():
    """Return the scene of a small GPT that was compiled twice, for two lengths."""
    torch.compiler.reset()
    model = GPT()
    step = torch.compile(model, backend="aot_eager", dynamic=False)

    def run():
        for length in (8, 12):
            step(torch.randint(0, 32, (2, length))).backward()

    return record(model, run)


class Routed(nn.Module):
    """Runs other operators when it is recomputed, because it counts its calls."""

    calls = 0

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        Routed.calls += 1
        h = self.up(x)
        if Routed.calls % 4 == 0:  # noqa: SIM108 -- one line for each branch
            h = h * torch.sigmoid(h)
        else:
            h = nn.functional.gelu(h)
        return x + h


@reproducible
def routed():
    Routed.calls = 0
    model = nn.ModuleList(Routed() for _ in range(6))

    def step():
        x = torch.ones(2, 8)
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        x.sum().backward()

    return record(model, step, RuntimeError)


@reproducible
def running_sum():
    """Return six steps whose losses are added up with their graphs."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        running = torch.zeros(())
        for _ in range(6):
            loss = model(torch.ones(2, 8)).mean()
            running = running + model(torch.ones(2, 8)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return record(model, step)
