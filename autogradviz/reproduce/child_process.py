"""Runs programs for ``run_programs``: ``python child_process.py``, one JSON object a line.

This file is a script. PyTorch is imported once; each program runs in a fork of the process where
the system has forks, so that a program changes nothing for the next one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
import traceback
import warnings
from typing import Any, cast


def main() -> None:
    """Answer the requests of the parent process until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout = sys.stderr = io.StringIO()
    sys.path[:] = json.loads(sys.stdin.readline())
    torch = importlib.import_module("torch")
    importlib.import_module("torch.utils.checkpoint")
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        if "names" in request:
            answer = {"known": _known(torch, request["names"]), "torch": torch.__version__}
            _warm_up(torch, request)
        elif hasattr(os, "fork"):
            if request["record"] and "autogradviz" not in sys.modules:
                run("import torch\ntorch.ones(1, requires_grad=True).exp().backward()", record=True)
            answer = _in_fork(request)
        else:
            answer = run(request["text"], record=request["record"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _warm_up(torch: Any, request: dict[str, Any]) -> None:
    """Let PyTorch import what a program needs, so that each fork has it."""
    value = torch.ones(1, requires_grad=True)
    if request["checkpoint"]:
        torch.utils.checkpoint.checkpoint(torch.exp, value, use_reentrant=False).backward()


def _known(torch: Any, ops: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Return the place of each operator's function in PyTorch, and its arguments."""
    found = {}
    for op in ops:
        space, name, overload = [*op.split("."), "default"][:3]
        where = ""
        for place, owner in (
            ("method", torch.Tensor), ("torch", torch), ("F", torch.nn.functional)
        ):  # fmt: skip
            if not where and hasattr(owner, name) and not name.startswith("_"):
                where = place
        try:
            operator = getattr(getattr(getattr(torch.ops, space), name), overload)
            schema = operator._schema  # noqa: SLF001 - has no public name
        except AttributeError:
            continue
        found[op] = (where, [argument.name for argument in schema.arguments])
    return found


def _in_fork(request: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with contextlib.suppress(BaseException):
            signal.alarm(request["seconds"])
            answer = run(request["text"], record=request["record"])
            with os.fdopen(write, "w", encoding="utf-8") as stream:
                json.dump(answer, stream)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    died = {"type": "", "message": "the process died or took too long", "slugs": []}
    return cast("dict[str, Any]", json.loads(text)) if text else died


def run(text: str, *, record: bool) -> dict[str, Any]:
    """Run a program; return its exception and, if it is recorded, the findings."""
    warnings.simplefilter("ignore")
    space: dict[str, Any] = {"__name__": "__main__"}
    answer: dict[str, Any] = {"type": None, "message": "", "slugs": []}
    trace = None
    try:
        code = compile(text, "bug.py", "exec")
        if record:
            autogradviz = importlib.import_module("autogradviz")
            with autogradviz.record() as trace:
                exec(code, space)  # noqa: S102 - a program that this package has written
        else:
            exec(code, space)  # noqa: S102
    except BaseException as error:  # noqa: BLE001 - it is the answer
        answer["type"], answer["message"] = type(error).__name__, str(error)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                 if frame.filename == "bug.py"]  # fmt: skip
        answer["line"] = lines[-1] if lines else 0
    if trace is not None:
        answer["slugs"] = [finding.slug for finding in trace.diagnose()]
    return answer


if __name__ == "__main__":
    main()
