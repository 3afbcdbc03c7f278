"""Measure ``record(verify=True)``: CPU time and memory of a step, as ratios of the plain step.

    python tests/bench/verified_steps.py [--runs N]

Plain and verified steps alternate in one process. The memory is the largest of a process that runs
three steps of one kind.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time

import torch
from run_cell import run_cell
from training_steps import STEPS

import autogradviz

MEASURED = ("12-layer GPT, d=768", "12-layer GPT, d=64", "RNN of 1,000 steps")


def show(value):
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def plain(model, inputs):
    model.zero_grad()
    model(inputs).backward()


def verified(model, inputs, engine="auto"):
    model.zero_grad()
    with autogradviz.record(model, verify=True, engine=engine) as trace:
        model(inputs).backward()
    assert trace.certificate().ok
    assert sum(trace.certificate().checked.values())


def seconds(step, *arguments, **options):
    began = time.process_time()
    step(*arguments, **options)
    return time.process_time() - began


def cell(name, kind, runs):
    """Print a list of times, plain and verified in turn, or the largest memory in bytes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    arguments = STEPS[name]()
    if kind in {"plain", "verified"}:
        for _ in range(3):
            {"plain": plain, "verified": verified}[kind](*arguments)
        show(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    plain(*arguments)
    verified(*arguments, engine=kind)
    pairs = [
        (seconds(plain, *arguments), seconds(verified, *arguments, engine=kind))
        for _ in range(runs)
    ]
    show(json.dumps(pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        cell(*options.cell, options.runs)
        return
    for name in MEASURED:
        for engine in ("auto", "python"):
            pairs = run_cell(__file__, name, engine, "--runs", str(options.runs), limit_s=1800)
            ours = [one / plain for plain, one in pairs]
            before = statistics.median(plain for plain, _ in pairs)
            ratio = f"{statistics.median(ours):.1f}x ({min(ours):.1f} to {max(ours):.1f})"
            show(f"{name}, {engine}: {ratio}, plain {before:.3f} s")
        memory = [run_cell(__file__, name, kind, limit_s=600) for kind in ("plain", "verified")]
        show(f"{name}: {memory[1] / memory[0]:.2f}x memory, plain {memory[0] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
