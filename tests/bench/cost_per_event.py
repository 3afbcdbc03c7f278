"""Cost per event as a recording grows: one long recording of a training.

The loop runs without and then within one recording. The CPU time added over an interval is divided
by the number of its events. Every step frees its graph, as in training.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise

import torch
from torch import nn

import autogradviz

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)  # events, from the beginning
WARM = 20  # steps
RUNS = 3
LIMIT_S = 300
MIB = 2**20
TITLE = "One recording of a small training loop, as it grows"
HEAD = f"### {TITLE}\n\n| events | CPU time per event | peak memory |\n|---|---|---|\n"


def measure() -> list[tuple[int, float, int]]:
    """Return, per length: events so far, microseconds per event since the last length, bytes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
    model, x = nn.Sequential(*layers), torch.rand(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(steps: int) -> float:
        began = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return time.process_time() - began

    train(WARM)
    with autogradviz.record(model) as few:
        train(WARM)
    a_step = len(few.log) / WARM
    del few
    plain_s = train(10 * WARM) / (10 * WARM)
    before = _peak()
    found = []
    with autogradviz.record(model):
        train(2)  # emits the definitions of modules, lines and stacks
        for last, length in pairwise((0, *LENGTHS)):
            steps = round((length - last) / a_step)
            more_s = train(steps) - steps * plain_s
            found.append((length, more_s / (steps * a_step) * 1e6, _peak() - before))
    return found


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table() -> str:
    """Return the table: medians over a few separate processes."""
    try:
        runs = [_measured() for _ in range(RUNS)]
    except subprocess.SubprocessError as error:
        return f"{HEAD}| {type(error).__name__} | | |\n"
    rows = []
    for intervals in zip(*runs, strict=True):
        length, each_us, more = map(statistics.median, zip(*intervals, strict=True))
        rows.append(f"| to {length:,} | {each_us:.1f} µs | {more / MIB:+,.0f} MiB |")
    return HEAD + "\n".join(rows) + "\n"


def _measured() -> list[tuple[int, float, int]]:
    """Run ``measure`` in a separate process."""
    ran = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(ran.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()) + "\n")
