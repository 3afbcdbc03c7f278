"""Checks for a machine with a GPU: ``make test-cuda`` runs them in ten minutes.

Without a CUDA device the checks that need none run on the CPU, and the others are named as skipped.
The report, ``test-output/cuda.md``, can be pasted into an issue.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.recorder.native import build

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "test-output" / "cuda.md"
ENGINES = ("native", "python") if build.status().usable else ("python",)
MIB = 2**20
CHECKS = []


class Skipped(Exception):
    """A check does not apply here; the message says why."""


def check(function):
    """Add a check: a function of the device that returns what it found."""
    CHECKS.append(function)
    return function


class Block(nn.Module):
    """A residual block whose second half is checkpointed."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = nn.functional.dropout(self.up(self.norm(x)).relu(), 0.1)
        return x + checkpoint(self.down, hidden, use_reentrant=False)


def make_model(device, width=256, depth=8):
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _ in range(depth))).to(device)


def step(model, device, autocast=None):
    """Return the loss and the gradients of one step, from the same random state."""
    torch.manual_seed(1)
    width = model[0].norm.normalized_shape[0]
    x = torch.linspace(-1, 1, 64 * width, device=device).view(64, width)
    with torch.autocast(device, autocast) if autocast else nullcontext():
        loss = model(x).float().square().mean()
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return [loss.detach(), *gradients]


def differences(model, plain, recorded):
    names = ["loss", *(name for name, _ in model.named_parameters())]
    pairs = zip(names, plain, recorded, strict=True)
    return [name for name, a, b in pairs if not torch.equal(a, b)]


def compare(device, engine, run, **options):
    """Assert that a recording changes nothing; return the trace."""
    model = make_model(device)
    run(model, device)
    plain = run(model, device)
    if differences(model, plain, run(model, device)):
        raise Skipped("two plain steps differ: the kernels are not deterministic")
    with autogradviz.record(model, engine=engine, **options) as trace:
        recorded = run(model, device)
    changed = differences(model, plain, recorded)
    assert not changed, f"{engine}: {changed} differ with a recording"
    return trace


def need_cuda(device):
    if device != "cuda":
        raise Skipped("needs a CUDA device")


@check
def results_are_bit_equal(device):
    """Loss and gradients with and without a recording, in float32 and under autocast."""
    for engine in ENGINES:
        for dtype in (None, torch.bfloat16):
            compare(device, engine, lambda model, on, d=dtype: step(model, on, d))
        compare(device, engine, step, keep_steps=3)
        compare(device, engine, step, ops=False)
    return f"{len(ENGINES) * 4} recordings"


@check
def float16_with_a_gradient_scaler_is_bit_equal(device):
    """A step as mixed-precision training runs it."""
    need_cuda(device)

    def scaled(model, on):
        scaler = torch.amp.GradScaler(on, init_scale=1024.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        torch.manual_seed(1)
        with torch.autocast(on, torch.float16):
            loss = model(torch.ones(8, 256, device=on)).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        return [loss.detach(), *gradients]

    for engine in ENGINES:
        compare(device, engine, scaled)
    return ", ".join(ENGINES)


@check
def no_operation_of_a_step_waits_for_the_device(device):
    """PyTorch raises where something would synchronize."""
    need_cuda(device)
    for engine in ENGINES:
        for options in ({}, {"ops": False}, {"keep_steps": 3}):
            model = make_model(device)
            step(model, device)
            with autogradviz.record(model, engine=engine, **options):
                torch.cuda.set_sync_debug_mode("error")
                try:
                    step(model, device)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
    return f"{len(ENGINES) * 3} recordings"


@check
def a_step_on_another_stream_is_bit_equal(device):
    """Backward runs on the stream of the forward, with and without a recording."""
    need_cuda(device)
    stream = torch.cuda.Stream()

    def on_stream(model, on):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = step(model, on)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    for engine in ENGINES:
        compare(device, engine, on_stream)
    return ", ".join(ENGINES)


@check
def saved_tensors_on_the_host_are_bit_equal(device):
    """``save_on_cpu`` copies saved tensors from and to the device."""

    def offloaded(model, on):
        with torch.autograd.graph.save_on_cpu(pin_memory=on == "cuda"):
            return step(model, on)

    for engine in ENGINES:
        compare(device, engine, offloaded)
    return ", ".join(ENGINES)


@check
def saved_bytes_and_allocated_bytes(device):
    """The peak of saved bytes cannot exceed what the allocator had in use."""
    model = make_model(device)
    step(model, device)
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with autogradviz.record(model) as trace:
        step(model, device)
    at_peak = trace.saved_bytes().at_peak
    assert at_peak > 0
    text = f"saved at peak: {at_peak / MIB:.1f} MiB"
    if device != "cuda":
        return f"{text}; the allocator was SKIPPED: needs a CUDA device"
    parameters = sum(each.numel() * each.element_size() for each in model.parameters())
    allocated = torch.cuda.max_memory_allocated() - before + parameters
    assert at_peak <= allocated, f"{text}, allocated: {allocated / MIB:.1f} MiB"
    return f"{text}; the allocator's peak with parameters: {allocated / MIB:.1f} MiB"


@check
def cost_of_a_recorded_step(device):
    """Medians of steps that alternate; the wall time includes waiting for the device."""
    rows = [f"{'':24}{'host':>10}{'until done':>12}"]
    for label, options in (
        ("plain", None),
        *((f"record, {engine}", {"engine": engine}) for engine in ENGINES),
        ("record, ops=False", {"ops": False}),
    ):
        host, done = measure(device, options)
        rows.append(f"{label:24}{host:8.2f} ms{done:9.2f} ms")
    return "\n" + "\n".join(f"    {row}" for row in rows)


def measure(device, options, steps=20):
    """Return the median milliseconds of a step: until Python goes on, and until it is done."""
    model = make_model(device)
    step(model, device)
    recording = nullcontext() if options is None else autogradviz.record(model, **options)
    host, done = [], []
    with recording:
        for _ in range(steps):
            begin = time.perf_counter()
            step(model, device)
            host.append(time.perf_counter() - begin)
            if device == "cuda":
                torch.cuda.synchronize()
            done.append(time.perf_counter() - begin)
    return statistics.median(host) * 1e3, statistics.median(done) * 1e3


@check
def tests_for_cuda(device):
    """The tests of the suite that need a device."""
    need_cuda(device)
    command = [sys.executable, "-m", "pytest", "-q", "tests/integration/test_cuda.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]
    return ran.stdout.strip().splitlines()[-1]


@check
def tests_on_the_device(device):
    """Results, cleanup, findings and faults of the programs, with tensors on the device."""
    need_cuda(device)
    names = ("results_unchanged", "cleanup", "bug_cases", "bug_variants", "faults_at_hook_points")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not ci"]
    command += [f"tests/integration/test_{name}.py" for name in names]
    chosen = {**os.environ, "AUTOGRADVIZ_TEST_DEVICE": "cuda"}
    ran = subprocess.run(command, cwd=ROOT, env=chosen, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]
    return ran.stdout.strip().splitlines()[-1]


def describe(device):
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    return (
        f"autogradviz {autogradviz.__version__}, PyTorch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.system()}, {name}, "
        f"engines: {', '.join(ENGINES)}"
    )


def run(function, device):
    """Return the end of a check and its text."""
    try:
        return "passed", function(device)
    except Skipped as reason:
        return "SKIPPED", str(reason)
    except Exception:
        return "FAILED", traceback.format_exc()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of the name of a check")
    only = parser.parse_args().only
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lines = [describe(device)]
    print(lines[0], flush=True)
    ends = []
    for function in CHECKS:
        if only in function.__name__:
            end, text = run(function, device)
            ends.append(end)
            lines.append(f"{end}: {function.__name__.replace('_', ' ')}: {text}")
            print(lines[-1], flush=True)
    counts = (f"{ends.count(end)} {end.lower()}" for end in ("passed", "FAILED", "SKIPPED"))
    lines.append(", ".join(counts))
    print(lines[-1])
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    print(f"Report: {REPORT.relative_to(ROOT)}")
    sys.exit(1 if "FAILED" in ends else 0)


if __name__ == "__main__":
    main()
