"""Measure ``record(device_time=True)`` on the device of the tests, into assets/device_time.md.

    python tests/bench/device_time.py [--rounds N]

The device's kernels run on the host, so that the CPU time of a step has both. Plain and recorded
training steps alternate in one process; each recording has ten steps.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from training_steps import STEPS  # noqa: E402

import autogradviz  # noqa: E402
from tests.accelerator import sim  # noqa: E402

STEPS_OF_A_RECORDING = 10
MEASURED = ("12-layer GPT, d=64", "12-layer GPT, d=64, checkpointed")
RECORDINGS = {
    "plain": nullcontext,
    "record()": partial(autogradviz.record, engine="native"),
    "record(device_time=True)": partial(autogradviz.record, engine="native", device_time=True),
}


def seconds(recording, model, inputs):
    """Return the CPU time of the steps of one recording, without its beginning and end."""
    with recording():
        began = time.process_time()
        for _ in range(STEPS_OF_A_RECORDING):
            model.zero_grad()
            model(inputs).backward()
        return time.process_time() - began


def measure(name, rounds):
    """Return the ratios of each kind of recording to plain steps, and the plain time of a step."""
    torch.manual_seed(0)
    torch.set_default_device("sim")
    model, inputs = STEPS[name]()
    taken = {kind: [] for kind in RECORDINGS}
    for _ in range(rounds + 1):
        for kind, recording in RECORDINGS.items():
            taken[kind].append(seconds(recording, model, inputs))
    taken = {kind: times[1:] for kind, times in taken.items()}  # the first ones warm up
    sim.clear()
    with autogradviz.record(engine="native", device_time=True):
        seconds(nullcontext, model, inputs)
        inside = len(sim.waits())
    plain = statistics.median(taken["plain"])
    ratios = {
        kind: sorted(one / base for one, base in zip(times, taken["plain"], strict=True))
        for kind, times in taken.items()
    }
    return ratios, plain / STEPS_OF_A_RECORDING, inside


def as_text(ratios):
    return f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    lines = [
        "# Time on the device: cost\n",
        "CPU time of a training step on the device of the tests, one thread, as ratios of the",
        f"plain step in the same process: median (least to most) of {rounds} rounds of ten steps.",
        "`make bench` writes this table.\n",
        "| step | plain | record() | record(device_time=True) | waits inside the steps |",
        "|---|---|---|---|---|",
    ]
    for name in MEASURED:
        ratios, plain, inside = measure(name, rounds)
        cells = [as_text(ratios[kind]) for kind in ("record()", "record(device_time=True)")]
        lines.append(f"| {name} | {plain * 1e3:.1f} ms | {cells[0]} | {cells[1]} | {inside} |")
    text = "\n".join(lines) + "\n"
    (ROOT / "assets" / "device_time.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
