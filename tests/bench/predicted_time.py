"""Predicted effect of checkpointing, and the real one: writes ``assets/checkpoint_predictions.md``.

``python tests/bench/predicted_time.py [REPEATS]`` has a row for each model. Bytes are those of two
recordings. The time that was added is CPU time of one thread without recording: plain and
checkpointed steps alternate, each time is the shortest of all repetitions. The same difference
between the plain steps of the first and of the second half is the noise. The recorded time is that
of the recomputations in recordings of the checkpointed model, the prediction that of recordings of
the plain model, on the wall clock: the shortest of each module call.

``python tests/bench/predicted_time.py constants [REPEATS]`` prints the constants of
``predict_memory.py``, fitted to the same models.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import conditions
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from test_memory_predictions import CASES, surround
from training_programs import Denoiser, ResNet, Transformer, UNet

import autogradviz
from autogradviz.analysis import predict_memory

TARGET = Path(__file__).parents[2] / "assets" / "checkpoint_predictions.md"


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.channels = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm_1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm_2(x))


class Mixer(nn.Module):
    """An MLP-Mixer of patches of an image."""

    def __init__(self, blocks=6, tokens=16, width=64):
        super().__init__()
        self.patches = nn.Linear(48, width)
        self.blocks = nn.ModuleList(MixerBlock(tokens, width) for _ in range(blocks))

    def forward(self, x):
        x = self.patches(x)
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(32, 64), nn.LSTM(64, 64)
        self.out = nn.Linear(64, 4)

    def forward(self, x):
        return self.out(self.second(self.first(x)[0])[0])


TOKENS = torch.arange(256).reshape(8, 32) % 100
MODELS = {
    **CASES,
    "mixer": (Mixer, (torch.rand(4, 16, 48),), ("blocks.*",)),
    "lstm": (Lstm, (torch.rand(30, 4, 32),), ("first", "second")),
    "blocks, larger": (partial(Transformer, 4, 256), (TOKENS,), ("h.*",)),
    "resnet, larger": (ResNet, (torch.rand(8, 3, 32, 32),), ("layer1", "layer2", "layer3")),
    "unet, larger": (UNet, (torch.rand(2, 3, 64, 64),), ("downs.*", "convs.*")),
    "diffusion, larger": (
        Denoiser,
        (torch.rand(4, 3, 32, 32), torch.rand(4)),
        ("down.*", "up.*"),
    ),
}


def step(model, inputs):
    model(*inputs).square().sum().backward()


def elapsed(model, inputs):
    """Return the CPU time of a step in microseconds."""
    start = time.thread_time_ns()
    step(model, inputs)
    return (time.thread_time_ns() - start) / 1e3


def record(model, inputs, engine):
    torch.manual_seed(0)
    with autogradviz.record(model, engine=engine) as trace:
        step(model, inputs)
    return trace


def shortest(rows):
    """Return the sum of the shortest durations of each call, in microseconds."""
    return sum(map(min, zip(*rows, strict=True))) / 1e3


class Case:
    """A model, and the same with checkpointed modules."""

    def __init__(self, factory, inputs, patterns):
        self.inputs, self.patterns = inputs, patterns
        torch.manual_seed(0)
        self.plain, self.checkpointed = factory(), factory()
        found = record(self.plain, inputs, "python").predict_memory(checkpoint=patterns)
        self.names = found.checkpoint
        for name in self.names:
            module = self.checkpointed.get_submodule(name)
            module.forward = surround(module.forward, "checkpoint")

    def added(self, repeats):
        """Return the CPU time that checkpointing adds, and its noise."""
        plain, checkpointed = [], []
        for _ in range(repeats):
            plain.append(elapsed(self.plain, self.inputs))
            checkpointed.append(elapsed(self.checkpointed, self.inputs))
        half = repeats // 2
        noise = abs(min(plain[:half]) - min(plain[half:]))
        noise += abs(min(checkpointed[:half]) - min(checkpointed[half:]))
        return min(checkpointed) - min(plain), noise

    def calls(self, engine):
        """Return the calls of the checkpointed modules in a recording of a plain step."""
        model = record(self.plain, self.inputs, engine)._memory_model
        return [each for each in model.calls.values() if each.module in self.names]

    def predicted(self, repeats, engine):
        rows = ([each.recompute_ns for each in self.calls(engine)] for _ in range(repeats))
        return shortest(rows)

    def recorded(self, repeats, engine):
        """Return the duration of recomputations that really ran."""
        rows = []
        for _ in range(repeats):
            trace = record(self.checkpointed, self.inputs, engine)
            rows.append([run.duration_ns for each in trace.checkpoints()
                         for run in each.recomputations])  # fmt: skip
        return shortest(rows)

    def freed(self):
        """Return the bytes that a prediction and a recording say that checkpointing frees."""
        plain = record(self.plain, self.inputs, "python")
        real = record(self.checkpointed, self.inputs, "python")
        predicted = plain.predict_memory(checkpoint=self.patterns).freed
        return predicted, plain.saved_bytes().at_peak - real.saved_bytes().at_peak


def measure(repeats):
    lines = [
        "| model | step | predicted | added | noise | error | recomputations, recorded | error"
        " | freed, predicted | freed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, case in MODELS.items():
        found = Case(*case)
        began = min(elapsed(found.plain, found.inputs) for _ in range(5))
        added, noise = found.added(repeats)
        predicted = found.predicted(repeats // 2, "auto")
        recorded = found.recorded(repeats // 2, "auto")
        freed, really = found.freed()
        lines.append(
            f"| {name} | {began / 1e3:.1f} ms | {predicted / 1e3:.2f} ms | {added / 1e3:.2f} ms"
            f" | ± {noise / added:.0%} | {predicted / added - 1:+.0%} | {recorded / 1e3:.2f} ms"
            f" | {predicted / recorded - 1:+.0%}"
            f" | {freed / 1e3:,.0f} kB | {really / 1e3:,.0f} kB |"
        )
        sys.stdout.write(f"{lines[-1]}\n")
        sys.stdout.flush()
    lines += ["", f"{repeats} repetitions. {conditions.line()}"]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def constants(repeats):
    """Fit the constants: what is left after the ops of the modules, as a weighted sum."""
    import numpy as np

    rows = []
    predict_memory.CHECKPOINT_NS = predict_memory.HOOKS_NS = 0
    for name, case in MODELS.items():
        found = Case(*case)
        added, _ = found.added(repeats)
        body = found.predicted(repeats // 2, "auto")
        model = record(found.plain, found.inputs, "python")._memory_model
        calls = [each for each in model.calls.values() if each.module in found.names]
        saves = sum(
            any(model.calls[outer].module in found.names for outer in model.around(at))
            for at in map(model._call_of, model._analysis.saved.values())
        )
        rows.append((len(calls), saves, added - body, added))
        sys.stdout.write(f"{name:18} {len(calls)} calls {saves} saves {rows[-1][2]:.0f} µs own\n")
    calls, saves, own, added = np.array(rows).T
    left = np.stack([calls, saves], 1) / added[:, None]
    call, save = np.linalg.lstsq(left, own / added, rcond=None)[0]
    sys.stdout.write(f"checkpoint: {call:.0f} µs for a call, {save:.1f} µs for a saved tensor\n")


def main():
    torch.set_num_threads(1)
    what, repeats = measure, 30
    for argument in sys.argv[1:]:
        if argument == "constants":
            what = constants
        else:
            repeats = int(argument)
    what(repeats)


if __name__ == "__main__":
    main()
