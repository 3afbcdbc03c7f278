"""Time that checkpointing adds: predicted from a recording, and measured without recording.

``python tests/bench/predicted_time.py`` prints the time of ``checkpoint`` itself on this machine
and one row for each model of the tests of ``predict_memory``. Steps are measured in CPU time of
one thread, so that a busy machine matters less; all times are the shortest of several
repetitions, in which the plain and the checkpointed step alternate. Of the predictions, the
shortest of each module call is taken.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from test_memory_predictions import CASES, record, surround
from training_programs import Denoiser, ResNet, Transformer, UNet

TOKENS = torch.arange(256).reshape(8, 32) % 100
LARGER = {
    "blocks, larger": (partial(Transformer, 4, 256), (TOKENS,), ("h.*",)),
    "attention, larger": (partial(Transformer, 4, 256), (TOKENS,), ("h.*.attn",)),
    "resnet, larger": (ResNet, (torch.rand(8, 3, 32, 32),), ("layer1", "layer2", "layer3")),
    "unet, larger": (UNet, (torch.rand(2, 3, 64, 64),), ("downs.*", "convs.*")),
    "diffusion, larger": (
        Denoiser,
        (torch.rand(4, 3, 32, 32), torch.rand(4)),
        ("down.*", "up.*"),
    ),
}


def elapsed(function):
    start = time.thread_time_ns()
    function()
    return time.thread_time_ns() - start


def sines(count, x):
    for _ in range(count):
        x = x.sin()
    return x


def time_of_checkpoint(repeats=400):
    """Return microseconds for one call of ``checkpoint`` and for one saved tensor."""
    x = torch.rand(4, requires_grad=True)
    extra = {}
    for count in (17, 65):
        f = partial(sines, count)
        steps = (
            lambda f=f: f(x),
            lambda f=f: f(x).sum().backward(),
            lambda f=f: checkpoint(f, x, use_reentrant=False).sum().backward(),
        )
        forward, plain, checkpointed = (
            min(elapsed(step) for _ in range(repeats)) for step in steps
        )
        extra[count] = (checkpointed - plain - forward) / 1e3
    per_save = (extra[65] - extra[17]) / 48
    return extra[17] - 17 * per_save, per_save


def compare(factory, inputs, patterns, repeats):
    """Return predicted and measured milliseconds."""
    torch.manual_seed(0)
    plain, checkpointed = factory(), factory()
    names = record(plain, inputs).predict_memory(checkpoint=patterns).checkpoint
    for name in names:
        module = checkpointed.get_submodule(name)
        module.forward = surround(module.forward, "checkpoint")

    def step(model):
        model(*inputs).square().sum().backward()

    predicted, without, with_ = [], [], []
    for _ in range(repeats):
        calls = record(plain, inputs)._memory_model.calls.values()
        predicted.append([call.recompute_ns for call in calls if call.module in names])
        without.append(elapsed(partial(step, plain)))
        with_.append(elapsed(partial(step, checkpointed)))
    each = map(min, zip(*predicted, strict=True))
    return sum(each) / 1e6, (min(with_) - min(without)) / 1e6


def main():
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    call, save = time_of_checkpoint()
    sys.stdout.write(f"checkpoint: {call:.0f} µs for a call, {save:.1f} µs for a saved tensor\n")
    for name, case in {**CASES, **LARGER}.items():
        predicted, measured = compare(*case, repeats)
        times = f"predicted {predicted:6.2f} ms  measured {measured:6.2f} ms"
        sys.stdout.write(f"{name:18} {times}  {predicted / measured - 1:+.0%}\n")


if __name__ == "__main__":
    main()
