"""Run a program in a forked process, with or without a recording."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import math
import os
import signal
import sys
import warnings

import torch
import torch.utils.checkpoint

import autogradviz

SECONDS = 60
VALUES = 4000  # of each returned tensor


def warm_up():
    """Import what a training program and a diagnosis import on first use, so that forks have it."""
    torch.set_num_threads(1)
    weight = torch.ones(1, requires_grad=True)
    with autogradviz.record() as trace:
        optimizer = torch.optim.AdamW([weight])
        torch.utils.checkpoint.checkpoint(torch.exp, weight, use_reentrant=False).backward()
        optimizer.step()
    trace.diagnose()


def run(path, *, recorded, targets=()):
    """Return the values of a program and the results of its recording; None if it died or hung.

    Args:
        path: the program.
        recorded: whether to record it.
        targets: arguments of ``why()``; the first that the recording knows is used.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(SECONDS)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        try:
            answer = _run(str(path), recorded, targets)
        except BaseException as error:
            answer = {"died": repr(error)[:300]}
        with os.fdopen(write, "w") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"died": "no answer"}
    if "died" in answer and recorded:
        print(f"{path}: {answer['died']}", file=sys.stderr)
    return None if "died" in answer else answer


def _run(path, recorded, targets):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    answer = {"error": None, "values": None, "findings": [], "audit": [], "says": []}
    trace = None
    try:
        if recorded:
            with autogradviz.record() as trace:
                returned = module.main()
        else:
            returned = module.main()
        answer["values"] = {
            name: None if value is None else value.detach().double().flatten().tolist()[:VALUES]
            for name, value in returned.items()
        }
        del returned
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"[:300]
        error.__traceback__ = None
    gc.collect()
    answer["live"] = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
    if trace is not None:
        findings = trace.diagnose()
        answer["findings"] = [
            [each.slug, each.confidence, _line(each.culprit, path)] for each in findings
        ]
        if hasattr(trace, "audit"):
            answer["audit"] = [
                [each.mechanism, _line(each.location, path), each.effect] for each in trace.audit()
            ]
            answer["why"] = _why(trace, path, targets)
    return answer


def _why(trace, path, targets):
    """Return the target, the question, and the line at which the answer ends."""
    for target in targets:
        with contextlib.suppress(autogradviz.UnknownTargetError):
            answer = trace.why(target)
            return [target, answer.question, _line(answer.steps[-1].location, path)]
    return None


def _line(location, path):
    return location.lineno if location is not None and location.filename == path else None


def symptoms(correct, bug):
    """Return the targets that a user would name: the exception, a value that differs, or memory."""
    if bug["error"]:
        return ["error"]
    found = {}
    a, b = correct["values"], bug["values"]
    for name in a.keys() & b.keys():
        if differs({"values": {name: a[name]}}, {"values": {name: b[name]}}):
            old, new = a[name] or [], b[name] or []
            change = sum((p - q) ** 2 for p, q in zip(old, new, strict=False))
            size = sum(p * p for p in old)
            found[name] = (change / (size + 1e-12)) if math.isfinite(change) else math.inf
    names = [name for name in sorted(found, key=lambda name: -found[name]) if name != "mean"]
    return [*names, "loss"] if names else ["memory"]


def differs(first, second, tolerance=1e-4):
    """Return whether two runs returned different numbers."""
    a, b = first["values"], second["values"]
    if a is None or b is None or a.keys() != b.keys():
        return True
    for name, expected in a.items():
        found = b[name]
        if (expected is None) != (found is None):
            return True
        if expected is not None and (
            len(expected) != len(found)
            or any(
                not abs(p - q) <= tolerance * (1e-3 + abs(p)) and not (p != p and q != q)  # noqa: PLR0124
                for p, q in zip(expected, found, strict=True)
            )
        ):
            return True
    return False
