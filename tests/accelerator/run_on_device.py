"""Run a program on the test device in a process of its own: PrivateUse1 is named once a process."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest
from interpreters import run_forked

from autogradviz.recorder.native.run_compiler import CompilerError
from tests.accelerator import build

ROOT = Path(__file__).parents[2]
PREFIX = "answer on the device: "
BEFORE = """\
import json
import torch
from tests.accelerator import sim
def answer(value):
    print({prefix!r} + json.dumps(value))
"""


@cache
def _problem() -> str | None:
    try:
        build.build()
    except CompilerError as error:
        if os.environ.get("CI") == "true" or str(error) != build.NO_COMPILER:
            raise
        return str(error)
    return None


def need_device() -> None:
    """Skip the test if no compiler can build the device; in CI that is an error."""
    problem = _problem()
    if problem is not None:
        pytest.skip(problem)


def run_on_device(program: str, folder: Path, *, native: bool = False, **environment: str):
    """Return what a program answers on the device.

    Args:
        program: its source, which is indented as the caller likes. It finds ``torch``, ``sim`` and
            ``answer``, which takes a value of JSON.
        folder: of the program's file; its lines are those of ``program``.
        native: the native engine is found there, if it is built.
        environment: more variables.

    Returns:
        The value of the last call of ``answer``, None if there was none.

    Raises:
        AssertionError: the program ended with an error, which is shown.
    """
    need_device()
    before, path = folder / "on_device.py", folder / "program.py"
    path.write_text(dedent(program), encoding="utf-8")
    before.write_text(
        BEFORE.format(prefix=PREFIX)
        + f"exec(compile(open({str(path)!r}).read(), {str(path)!r}, 'exec'))\n",
        encoding="utf-8",
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    if native and "AUTOGRADVIZ_TEST_CACHE" in variables:
        variables["AUTOGRADVIZ_CACHE"] = variables["AUTOGRADVIZ_TEST_CACHE"]
    ended = run_forked(before, env=variables | environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answers = [line for line in ended.stdout.splitlines() if line.startswith(PREFIX)]
    return json.loads(answers[-1].removeprefix(PREFIX)) if answers else None
