"""Record the programs of the integration tests with the native engine, built with sanitizers.

``python -m tests.sanitize.run_programs build FOLDER`` builds the engine with the address sanitizer
and the undefined-behavior sanitizer into a cache folder; ``build-for-threads FOLDER`` builds it
with the thread sanitizer. ``run EVERY`` records each EVERYth program, ``run-threads EVERY`` those
with threads; ``make sanitize`` does all. A sanitizer that finds something ends the process, or
makes it fail.

Python and PyTorch are built without the thread sanitizer, which cannot follow their locks: with
``ignore_noninstrumented_modules`` it reports races between two accesses of the engine alone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -g1"
"""Without ``vptr``: the engine reads fields of nodes through a class of the same layout."""
THREAD_FLAGS = "-fsanitize=thread -g1"

OPTIONS = ({}, {"keep_steps": 1}, {"ops": False}, {"fingerprints": True}, {"norms": True})


def build(folder: str, flags: str) -> None:
    """Build the engine with sanitizers into a cache folder."""
    compiler = Path(folder, "g++")
    compiler.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join([os.environ.get("CXX", "g++"), *shlex.split(flags)])
    compiler.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    os.environ.update(CXX=str(compiler), AUTOGRADVIZ_CACHE=folder)
    from autogradviz.recorder.native import build as native

    native.build()


def run(every: int, part: str = "") -> None:
    """Record the programs with a part in their names, each with one of the options.

    What they raise is not of interest.
    """
    sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests")]
    warnings.simplefilter("ignore")
    import edge_case_programs  # noqa: F401 - registers programs
    import programs
    import torch
    import training_loops  # noqa: F401 - registers programs

    import autogradviz

    torch.set_num_threads(1)
    chosen = sorted(name for name in programs.PROGRAMS if part in name)[::every]
    for number, name in enumerate(chosen):
        sys.stdout.write(f"{name}\n")  # the last one is the culprit
        sys.stdout.flush()
        torch.manual_seed(0)
        with contextlib.suppress(Exception, KeyboardInterrupt):
            with autogradviz.record(engine="native", **OPTIONS[number % len(OPTIONS)]) as trace:
                programs.PROGRAMS[name]()
            assert trace.analysis.graph is not None
    sys.stdout.write(f"{len(chosen)} programs recorded, and no sanitizer reported anything\n")


if __name__ == "__main__":
    kind, argument = sys.argv[1:]
    if kind.startswith("build"):
        build(argument, FLAGS if kind == "build" else THREAD_FLAGS)
    else:
        run(int(argument), "" if kind == "run" else "thread")
