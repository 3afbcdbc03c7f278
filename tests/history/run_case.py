"""Run the driver of a case in this process, with and without a recording."""

from __future__ import annotations

import ctypes
import gc
import importlib
import random
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

import autogradviz
from tests.history.case import Run, load

if TYPE_CHECKING:
    from pathlib import Path


def install(stubs) -> None:
    """Put modules made from source texts into ``sys.modules``."""
    for name, source in stubs.items():
        parent, _, attribute = name.rpartition(".")
        module = types.ModuleType(name)
        module.__path__ = []  # so that it can have submodules
        sys.modules[name] = module
        exec(compile(source, f"<stub of {name}>", "exec"), module.__dict__)
        if parent:
            setattr(importlib.import_module(parent), attribute, module)


def forget(root: Path) -> None:
    """Remove modules imported from a folder, so that the next import executes them again."""
    for name in [name for name, module in sys.modules.items() if _is_below(module, root)]:
        del sys.modules[name]


def _is_below(module, root):
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return str(file).startswith(str(root))


def execute(module, root: Path, options=None):
    """Return the run of a driver, and its trace if options of a recording are given."""
    forget(root)
    install(module.CASE.stubs)
    torch.manual_seed(0)
    random.seed(0)
    run, trace = Run(), None
    model, step = module.build()

    def train():
        for number in range(module.CASE.steps):
            value = step(number)
            values = value if isinstance(value, dict) else {"loss": value}
            del value
            observe(values, {n: p.grad for n, p in model.named_parameters() if p.grad is not None})
            del values
            if options is None and module.CASE.steps > 1:
                gc.collect()
                run.live.append(
                    sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
                    - sum(len(g) for g in run.grads)
                    - sum(isinstance(v, torch.Tensor) for d in run.values for v in d.values())
                )

    def observe(values, grads):
        # A recorded loop must not keep tensors of its own: digests show whether it is the same.
        run.digests.append([(name, digest(v)) for name, v in [*values.items(), *grads.items()]])
        if options is None:
            run.values.append({name: copy(value) for name, value in values.items()})
            run.grads.append({name: copy(grad) for name, grad in grads.items()})

    try:
        if options is None:
            train()
        else:
            with autogradviz.record(model, **options) as trace:
                train()
    except Exception as error:
        run.error = f"{type(error).__name__}: {error}"
    return run, trace


def copy(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def digest(value):
    """Return the bytes of a value, without an op that a recording would see."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    size = value.numel() * value.element_size()
    if not value.is_contiguous():
        return repr(value.tolist())
    return ctypes.string_at(value.data_ptr(), size) if size else b""


def lines(trace, root: Path):
    """Return the findings and the entries of the audit of a trace, with their lines."""

    def place(location):
        if location is None:
            return None
        name = location.filename
        name = name.removeprefix(f"{root}/")
        return [name, location.lineno, location.text.strip()]

    return {
        "findings": [
            {"slug": f.slug, "confidence": f.confidence, "title": f.title,
             "culprit": place(f.culprit), "victim": place(f.victim)}
            for f in trace.diagnose()
        ],
        "audit": [
            {"mechanism": e.mechanism, "confidence": e.confidence, "place": place(e.location),
             "others": [place(o) for o in e.others], "effect": e.effect}
            for e in trace.audit()
        ],
    }  # fmt: skip


def run_case(path: Path, root: Path, *, recorded: bool):
    """Return the runs of a driver: without a recording, with a plain one, with that of the case.

    Args:
        path: the case file.
        root: the folder with the extracted files.
        recorded: whether to record at all.
    """
    sys.path.insert(0, str(root))
    module = load(path)
    plain, _ = execute(module, root)
    result: dict[str, Any] = {"plain": plain}
    chosen = dict(module.CASE.options)
    for name, options in [("default", {}), ("chosen", chosen)] if recorded else []:
        if name == "chosen" and not options:
            continue
        run, trace = execute(module, root, options)
        result[name] = {"unchanged": plain.same(run), **lines(trace, root)}
    return result


def warm_up() -> None:
    """Import what a training step and a diagnosis import on first use, so that forks have it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    weight = torch.ones(1, requires_grad=True)
    with autogradviz.record() as trace:
        optimizer = torch.optim.AdamW([weight])
        torch.utils.checkpoint.checkpoint(torch.exp, weight, use_reentrant=False).backward()
        optimizer.step()
    trace.diagnose()
    trace.audit()
