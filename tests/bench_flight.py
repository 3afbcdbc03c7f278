"""What a long flight recording costs in memory: ``python tests/bench_flight.py [STEPS]``.

Trains a small checkpointed model for 10,000 steps under ``record(keep_steps=3)`` and writes the
curve to ``assets/flight.md``.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import RecordingEnded

POINTS = 10
PAGE = os.sysconf("SC_PAGE_SIZE")
TARGET = Path(__file__).parent.parent / "assets" / "flight.md"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.inner = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(0.1))
        self.last = torch.nn.Linear(32, 1)

    def forward(self, x):
        hidden = checkpoint(self.inner, self.first(x), use_reentrant=False)
        return self.last(hidden.relu())


def resident():
    """Return this process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def main(steps):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    points = []
    began = time.process_time()
    with autogradviz.record(model, keep_steps=3) as trace:
        for step in range(steps + 1):
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (steps // POINTS) == 0:
                held = trace.snapshot().log
                points.append((step, resident(), len(held), held.of(RecordingEnded)[0].seq))
    seconds = time.process_time() - began
    write(points, seconds / steps)


def write(points, seconds_a_step):
    lines = [
        "Resident memory of a training under `record(keep_steps=3)`: "
        f"{seconds_a_step * 1e3:.1f} ms a step, CPU (`python tests/bench_flight.py`).",
        "",
        "| after step | events so far | events held | resident memory |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {step:,} | {seq:,} | {held:,} | {nbytes / 1e6:.1f} MB |"
        for step, nbytes, held, seq in points
    ]
    text = "\n".join(lines) + "\n"
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
