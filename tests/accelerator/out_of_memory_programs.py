"""Steps that run out of memory, and what applies a suggested change to them.

A program asks a ``Changed`` wherever a change could be made: the change says what and where, so
no program knows the answer to its own problem.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz import events
from tests.accelerator import sim

DEVICE = "sim:0"


class Changed:
    """One change of a program, or none; see ``autogradviz.Change``."""

    def __init__(self, change=None):
        self.change = change
        self.kind = None if change is None else change.kind

    def _here(self, *kinds, lines=1):
        """Return whether the change is of a kind, and of the line that asks or the next one."""
        if self.kind not in kinds:
            return False
        frame, place = sys._getframe(2), self.change.location
        return (
            place is not None
            and place.filename == frame.f_code.co_filename
            and 0 <= place.lineno - frame.f_lineno < lines
        )

    def kept(self, tensor):
        """Return the tensor that a container keeps, None after the change."""
        return None if self._here("release") else tensor

    def retains(self):
        """Return whether the backward of this line retains its graph."""
        return not self._here("drop retain_graph")

    def model(self):
        """Return the context of a call of a model on the next line.

        It returns whether that call is to have a backward of its own.
        """
        context = contextlib.nullcontext(self._here("backward", lines=2))
        if self._here("no_grad", lines=2):
            context = torch.no_grad()
        elif self.kind == "offload":
            context = torch.autograd.graph.save_on_cpu()
        return context

    def sets_to_none(self):
        """Return whether the zero_grad of this line frees the gradients."""
        return self._here("zero_grad")

    def parts(self, batch):
        return batch.chunk(self.change.count) if self.kind == "micro_batches" else (batch,)

    def in_chunks(self, function, rows, *more):
        """Return the sum of a function over rows; in checkpointed chunks if it begins there."""
        begins = None if self.kind != "chunks" else self.change.location
        code = function.__code__
        if begins is None or (begins.filename, begins.lineno) != (
            code.co_filename, code.co_firstlineno + 1,
        ):  # fmt: skip
            return function(rows, *more)
        chunks = zip(*(each.chunk(self.change.count) for each in (rows, *more)), strict=True)
        return sum(checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks)

    def optimizer(self, parameters):
        if self.kind == "optimizer":
            return getattr(torch.optim, self.change.target)(parameters, lr=0.01)
        return torch.optim.Adam(
            parameters, lr=0.01, foreach=False if self.kind == "foreach" else None
        )

    def prepare(self, model, *checkpointed):
        """Checkpoint the modules that the program names, or those of the change."""
        patterns = [self.change.target] if self.kind == "checkpoint" else checkpointed
        root = type(model).__name__  # a recording without a model names it so
        matching = [
            name
            for name, _ in model.named_modules()
            if name and any(fnmatchcase(f"{root}.{name}", pattern) for pattern in patterns)
        ]
        for name in matching:
            if not any(name.startswith(f"{outer}.") for outer in matching):
                module = model.get_submodule(name)
                module.forward = _checkpointed(module.forward)
        return model


def _checkpointed(forward):
    return lambda *inputs: checkpoint(forward, *inputs, use_reentrant=False)


class Block(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self, width=64, inner=256, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, inner) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x):
        query, key, value = self.project(x).chunk(3, -1)
        scores = query @ key.transpose(-2, -1)
        return x + scores.softmax(-1) @ value


def leak_of_graphs(changed):
    net = changed.prepare(Net().to(DEVICE))
    critic = Net(depth=1).to(DEVICE)
    optimizer = changed.optimizer([*net.parameters(), *critic.parameters()])
    history = []
    for _ in range(8):
        for x in changed.parts(torch.rand(512, 64, device=DEVICE)):
            with changed.model():
                found = net(x)
            found.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        value = critic(x).mean()
        history.append(changed.kept(value))


def huge_allocation(changed):
    net = changed.prepare(nn.Linear(8, 32).to(DEVICE))
    centers = torch.rand(256, 32, device=DEVICE)
    optimizer = changed.optimizer(net.parameters())
    for x in changed.parts(torch.rand(512, 8, device=DEVICE)):
        with changed.model():
            features = net(x)
        distances = (features[:, None] - centers).square().sum(-1)
        distances.min(1).values.mean().backward()
    optimizer.step()


def attention_maps(changed):
    net = changed.prepare(nn.Sequential(*(Attention(32) for _ in range(6))).to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    for x in changed.parts(torch.rand(8, 192, 32, device=DEVICE)):
        with changed.model():
            found = net(x)
        found.square().mean().backward()
    optimizer.step()


def optimizer_state(changed):
    net = changed.prepare(Net(width=256, inner=512, depth=4).to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    for x in changed.parts(torch.rand(16, 256, device=DEVICE)):
        with changed.model():
            found = net(x)
        found.square().mean().backward()
    optimizer.step()


def retained_graph(changed):
    net = changed.prepare(Net().to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    losses = []
    for _ in range(6):
        with changed.model():
            found = net(torch.rand(512, 64, device=DEVICE))
        loss = found.square().mean()
        loss.backward(retain_graph=changed.retains())
        losses.append(changed.kept(loss))
        optimizer.step()
        optimizer.zero_grad()


def micro_batches_without_backward(changed):
    net = changed.prepare(Net(depth=2).to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    total = torch.zeros((), device=DEVICE)
    for _ in range(8):
        with changed.model() as has_own_backward:
            found = net(torch.rand(512, 64, device=DEVICE))
        loss = found.square().mean()
        if has_own_backward:
            loss.backward()
        else:
            total = total + loss
    if total.requires_grad:
        total.backward()
    optimizer.step()


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(Block(64, 256) for _ in range(6)))

    def forward(self, x):
        return self.body(x)


def recomputation_itself(changed):
    net = changed.prepare(Checkpointed().to(DEVICE), "Checkpointed.body")
    optimizer = changed.optimizer(net.parameters())
    for x in changed.parts(torch.rand(512, 64, device=DEVICE)):
        with changed.model():
            found = net(x)
        found.square().mean().backward()
    optimizer.step()


def logits_of_large_vocabulary(changed):
    net = changed.prepare(Net(depth=2, inner=64).to(DEVICE))
    head = nn.Linear(64, 4_000, bias=False).to(DEVICE)
    optimizer = changed.optimizer([*net.parameters(), *head.parameters()])
    words = torch.zeros(768, dtype=torch.long, device=DEVICE)
    inputs = torch.rand(768, 64, device=DEVICE)

    def loss_of(hidden, y):
        return F.cross_entropy(head(hidden), y, reduction="sum")

    for x, y in zip(changed.parts(inputs), changed.parts(words), strict=True):
        with changed.model():
            hidden = net(x)
        changed.in_chunks(loss_of, hidden, y).backward()
    optimizer.step()


def cached_activations(changed):
    net = changed.prepare(Net().to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    cache = []
    for _ in range(8):
        for x in changed.parts(torch.rand(512, 64, device=DEVICE)):
            cache.append(changed.kept(net.blocks[0].up(x).detach().relu()))
            with changed.model():
                found = net(x)
            found.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluation_without_no_grad(changed):
    net = changed.prepare(Net(depth=2).to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    net(torch.rand(64, 64, device=DEVICE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    net.eval()
    outputs = []
    for _ in range(8):
        with changed.model():
            found = net(torch.rand(512, 64, device=DEVICE))
        outputs.append(changed.kept(found))
    torch.cat(outputs)


def two_models(changed):
    student = changed.prepare(Net(depth=2).to(DEVICE))
    teacher = Net(inner=512, depth=4).to(DEVICE)
    optimizer = changed.optimizer(student.parameters())
    for x in changed.parts(torch.rand(512, 64, device=DEVICE)):
        with changed.model():
            target = teacher(x)
        with changed.model():
            found = student(x)
        F.mse_loss(found, target).backward()
    optimizer.step()


def near_miss(changed):
    net = changed.prepare(Net(width=128, inner=512, depth=4).to(DEVICE))
    optimizer = changed.optimizer(net.parameters())
    for _ in range(3):
        for x in changed.parts(torch.rand(256, 128, device=DEVICE)):
            with changed.model():
                found = net(x)
            found.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=changed.sets_to_none())


PROGRAMS = {
    # Of the memory that the program needs, the share that the device has.
    leak_of_graphs: 0.75,
    huge_allocation: 0.4,
    attention_maps: 0.6,
    optimizer_state: 0.8,
    retained_graph: 0.6,
    micro_batches_without_backward: 0.6,
    recomputation_itself: 0.7,
    logits_of_large_vocabulary: 0.6,
    cached_activations: 0.8,
    evaluation_without_no_grad: 0.6,
    two_models: 0.6,
    near_miss: 0.95,
}


PLENTY = 1 << 30


def larger_than_the_device(_changed):
    x = torch.rand(100, device=DEVICE, requires_grad=True)
    x.square()
    torch.zeros(4 * PLENTY, dtype=torch.uint8, device=DEVICE)


SMALL = 1 << 23


def caught(_changed):
    x = torch.rand(SMALL // 8, device=DEVICE, requires_grad=True)
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.zeros(SMALL // 4 * 3, dtype=torch.uint8, device=DEVICE)
    x[:10].square()


def wrapped(_changed):
    kept = torch.rand(SMALL // 8, device=DEVICE)
    try:
        torch.zeros(SMALL // 4 * 3, dtype=torch.uint8, device=DEVICE)
    except torch.OutOfMemoryError as error:
        message = f"no room for more than {len(kept)} numbers"
        raise ValueError(message) from error


def failed(program, changed, **options):
    """Run a program; return the exception's text, the count of allocations then, and the trace."""
    text, count, trace = "", 0, None
    recording = autogradviz.record(**options) if options else contextlib.nullcontext()
    try:
        with recording as trace:
            try:
                program(changed)
            except Exception:
                count = allocations()
                raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        assert count == allocations(), "the recording allocated memory"
    gc.collect()
    # The device's thread keeps what it ran last, and with it the model of a failed recomputation.
    torch.ones(1, device=DEVICE, requires_grad=True).sum().backward()
    gc.collect()
    return text, trace


def allocations():
    return torch.accelerator.memory_stats(0)["allocation.all.allocated"]


def peak_of(program):
    """Return the memory that a program needs."""
    set_capacity(PLENTY)
    torch.accelerator.reset_peak_memory_stats(0)
    program(Changed())
    gc.collect()
    return torch.accelerator.max_memory_allocated(0)


def set_capacity(nbytes):
    torch.accelerator.empty_cache()
    sim.set_capacity(0, nbytes)


def outcome(program, share, engine):
    """Return the first finding, and whether its first change makes the program fit."""
    capacity = int(peak_of(program) * share)
    before = torch.accelerator.memory_allocated(0)
    set_capacity(capacity)
    plain, _ = failed(program, Changed())
    torch.accelerator.empty_cache()
    recorded, trace = failed(program, Changed(), engine=engine)
    assert torch.accelerator.memory_allocated(0) == before, "the recording keeps tensors"
    finding = next(each for each in trace.diagnose() if each.slug == "out-of-memory")
    change = finding.changes[0]
    torch.accelerator.empty_cache()
    after, _ = failed(program, Changed(change))
    return {
        "first": trace.diagnose()[0].slug,
        "messages": [plain, recorded],
        "change": change.kind,
        "fits": not after,
        "failures": [str(each) for each in trace.log.of(events.RecorderFailed)],
    }
