"""Cost of recording compiled training: a warm compiled step, and the compilation itself.

Each cell is measured in a separate process on one thread. Groups of plain and of recorded steps
alternate, as do compilations without and within a recording. Ratios are medians over the pairs;
half their interquartile range is the noise.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import sys
import tempfile
import time

import torch
import torch._functorch.config as functorch_config
from recorders import plain
from run_cell import run_cell
from training_steps import STEPS

import autogradviz

TITLE = "12-layer GPT, d=64, compiled"
BACKENDS = ("aot_eager", "inductor")
ENGINES = ("native", "python")
WARM = 6  # steps
GROUP = 100  # steps in one recording
PAIRS = 8
COMPILATIONS = {"aot_eager": 6, "inductor": 3}  # pairs; the first warms up
LIMIT_S = 900
HEAD = (
    f"### {TITLE}\n\nSteps are warm, and {GROUP} of them are in one recording. Compiling is a "
    "first step with empty caches.\n\n| | step | record() | record(ops=False) | compiling | while "
    "recording |\n|---|---|---|---|---|---|\n"
)


def measure(backend: str, engine: str, what: str) -> list[tuple[float, ...]]:
    """Return the CPU seconds of each turn: plain, recorded and, for steps, without ops."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = STEPS["12-layer GPT, d=64"]()
    if what == "compile":
        return _compilations(model, inputs, backend, engine)
    compiled = torch.compile(model, backend=backend)
    for _ in range(WARM):
        plain(compiled, inputs)
    with autogradviz.record(engine=engine):
        plain(compiled, inputs)
    return [
        (
            _seconds(_steps, compiled, inputs),
            _seconds(_recorded_steps, compiled, inputs, {"engine": engine}),
            _seconds(_recorded_steps, compiled, inputs, {"engine": engine, "ops": False}),
        )
        for _ in range(PAIRS)
    ]


def _steps(model, inputs) -> None:
    for _ in range(GROUP):
        plain(model, inputs)


def _recorded_steps(model, inputs, options) -> None:
    with autogradviz.record(**options):
        _steps(model, inputs)


def _compilations(model, inputs, backend, engine) -> list[tuple[float, float]]:
    def compile_first() -> None:
        torch._dynamo.reset()
        plain(torch.compile(model, backend=backend), inputs)

    def compile_recorded() -> None:
        with autogradviz.record(engine=engine):
            compile_first()

    with functorch_config.patch(enable_autograd_cache=False):
        turns = range(COMPILATIONS[backend])
        pairs = [(_seconds(compile_first), _seconds(compile_recorded)) for _ in turns]
    return pairs[1:]


def _seconds(work, *args) -> float:
    gc.collect()
    began = _cpu_seconds()
    work(*args)
    return _cpu_seconds() - began


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the C++ compilers that it has run."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def table() -> str:
    """Return the table, one row for each backend and engine."""
    return HEAD + "\n".join(_row(b, e) for b in BACKENDS for e in ENGINES) + "\n"


def _row(backend: str, engine: str) -> str:
    name = backend if engine == "native" else f"{backend}, Python engine"
    steps, compilations = (_measured(backend, engine, what) for what in ("step", "compile"))
    if isinstance(steps, str) or isinstance(compilations, str):
        return f"| {name} | {steps if isinstance(steps, str) else compilations} | | | | |"
    base, full, bare = zip(*steps, strict=True)
    plain_s, recorded_s = zip(*compilations, strict=True)
    return (
        f"| {name} | {statistics.median(base) / GROUP * 1e3:.1f} ms | {_ratio(full, base)} | "
        f"{_ratio(bare, base)} | {statistics.median(plain_s):.1f} s | "
        f"{_ratio(recorded_s, plain_s)} |"
    )


def _ratio(recorded, base) -> str:
    ratios = [one / other for one, other in zip(recorded, base, strict=True)]
    lower, ratio, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{ratio:.2f}× ± {(upper - lower) / 2:.2f}"


def _measured(backend: str, engine: str, what: str) -> list[list[float]] | str:
    """Measure one cell in a separate process, with an empty cache of Inductor."""
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        return run_cell(
            __file__,
            backend,
            engine,
            what,
            limit_s=LIMIT_S,
            TORCHINDUCTOR_CACHE_DIR=folder,
            TORCHINDUCTOR_COMPILE_THREADS="1",
            TORCHINDUCTOR_FX_GRAPH_CACHE="0",
        )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(*sys.argv[2:])) + "\n")
