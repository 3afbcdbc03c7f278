"""Runs a training program of a public repository, as its users run it, with or without a recording.

The files are extracted from local copies of the repositories, as ``tests.history`` does; none of
their code is here. A program is ended after a few steps of its optimizers.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import autogradviz
from autogradviz.cli.run_as_main import Program as Script
from autogradviz.cli.run_as_main import run_as_main
from tests.history.mirror import extract
from tests.history.run_case import digest, install

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Program:
    """A training program in a public repository.

    Attributes:
        repository: owner and name.
        commit: the one whose files are run.
        license: of the repository, by its SPDX identifier.
        script: the file that is run as a program.
        also: more files to extract; a path that ends with "/" is all Python files below it.
        arguments: the command line of the program.
        stubs: source text of modules that stand for absent ones, by name.
        prepare: writes the data that the program reads, in its folder.
        start: called in place of running the script: imports from it, and trains.
        steps: how many steps of optimizers run.
    """

    repository: str
    commit: str
    license: str
    script: str
    also: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    stubs: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    start: Callable[[], None] | None = None
    steps: int = 4

    @property
    def paths(self) -> tuple[str, ...]:
        """The files to extract."""
        return (self.script, *self.also)


class Watch:
    """A hook after each step of an optimizer, which keeps digests of what a program computed.

    Attributes:
        digests: of parameters, gradients and random states after each step, and at the end.
        parameters: the numbers of elements of the parameters that optimizers have.
        seconds: CPU times of all steps but the first.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self.digests = steps, []
        self.parameters: dict[int, int] = {}
        self.seconds: list[float] = []
        self._began = 0.0

    def __call__(self, optimizer, *_) -> None:
        """Keep what a step computed; end the program after the last one."""
        if self._began:
            self.seconds.append(time.process_time() - self._began)
        weights = [each for group in optimizer.param_groups for each in group["params"]]
        self.parameters |= {id(each): each.numel() for each in weights}
        self.digests.append([digests_of(weights), random_states()])
        if len(self.digests) == self.steps:
            raise SystemExit
        self._began = time.process_time()

    def end(self) -> None:
        """Keep the parameters that are alive, also those that no optimizer has."""
        alive = [each for each in gc.get_objects() if type(each) is torch.nn.Parameter]
        self.digests.append([sorted(digests_of(alive)), random_states()])


def digests_of(weights) -> list[str]:
    """Return digests of parameters and their gradients."""
    values = [value for each in weights for value in (each, each.grad)]
    return [hashlib.sha1(_as_bytes(digest(each))).hexdigest() for each in values]


def _as_bytes(value) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def random_states() -> str:
    """Return a digest of the states of all random generators."""
    states = repr((random.getstate(), np.random.get_state())).encode()  # noqa: NPY002 - programs draw from it
    return hashlib.sha1(states + digest(torch.get_rng_state())).hexdigest()


def execute(program: Program, options: Mapping[str, Any] | None):
    """Run a program whose files are in the current folder.

    Args:
        program: what to run.
        options: of ``autogradviz.record``; None to run it without a recording.

    Returns:
        Its watch, the exception that ended it, and its trace.
    """
    folder = Path(program.script).parent.resolve()
    sys.path[:0] = [str(folder), str(Path.cwd())]
    install(program.stubs)
    os.chdir(folder)
    program.prepare()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - programs draw from it
    watch, trace, failure = Watch(program.steps), None, ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            with contextlib.ExitStack() as stack:
                if options is not None:
                    trace = stack.enter_context(autogradviz.record(**options))
                # After that of the recording, so that the last step is in it.
                stack.callback(register_optimizer_step_post_hook(watch).remove)
                _train(program)
        except SystemExit:
            watch.end()
        except Exception as error:
            vars(error).pop("__notes__", None)  # the recording adds its finding as a note
            failure = traceback.format_exc()
        else:
            watch.end()
    return watch, failure, trace


def _train(program: Program) -> None:
    if program.start is not None:
        sys.argv[:] = [program.script, *program.arguments]
        program.start()
    else:
        run_as_main(Script(Path(program.script).name, program.arguments, module=False))


def run(mirror: Path, program: Program, options=None, describe=None) -> dict[str, Any]:
    """Run a program in a process of its own.

    Args:
        mirror: the folder with copies of repositories.
        program: what to run.
        options: of ``autogradviz.record``; None to run it without a recording.
        describe: called with the trace, for what to keep of it.

    Returns:
        ``digests``, ``parameters``, ``seconds``, ``failure``, and what was kept of the trace.
    """
    with tempfile.TemporaryDirectory(prefix="program-") as folder:
        root, out = Path(folder) / "files", Path(folder) / "result.pt"
        extract(mirror, program, program.commit, root)
        process = multiprocessing.get_context("fork").Process(
            target=_in_child, args=(program, root, out, options, describe)
        )
        process.start()
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        if not out.exists():
            failure = f"ended with {process.exitcode}"
            return {"digests": [], "parameters": 0, "seconds": [], "failure": failure}
        return torch.load(out, weights_only=False)


def _in_child(program, root, out, options, describe) -> None:
    os.chdir(root)
    watch, failure, trace = execute(program, options)
    kept = describe(trace) if describe is not None and not failure else None
    torch.save({
        "digests": watch.digests, "parameters": sum(watch.parameters.values()),
        "seconds": watch.seconds, "failure": failure, "kept": kept,
    }, out)  # fmt: skip
