"""Recorders measured by ``make bench``: autogradviz, the lower bound, and other tools."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autogradviz

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRAWING_LIMIT_S = 60
"""Time limit for Graphviz: large graphs take hours, or all memory."""

DRAWN_NODES = 6_000
"""Larger graphs are not drawn with ``dot``: 5,000 nodes took more than five minutes."""


class Missing(Exception):
    """A tool is not installed, or cannot record this step."""


class Drawn(NamedTuple):
    """Result of recording one step."""

    events: int | None
    file_bytes: int | None
    drawing_s: float | None


class EmptyMode(TorchDispatchMode):
    """A dispatch mode that does nothing."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def plain(model, inputs):
    model.zero_grad()
    model(inputs).backward()


def floor(model, inputs):
    """An empty mode, and an empty hook before every node."""
    model.zero_grad()
    with EmptyMode():
        loss = model(inputs)
        seen, waiting = set(), [loss.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                node.register_prehook(_empty_hook)
                waiting.extend([child for child, _ in node.next_functions])
        loss.backward()


def _empty_hook(_):
    return None


def recorded(**options) -> Callable:
    known = inspect.signature(autogradviz.record).parameters

    def record(model, inputs):
        if not options.keys() <= known.keys():
            raise Missing("not built yet")
        with autogradviz.record(**options) as trace:
            plain(model, inputs)
        return trace

    return record


def each_of_many(**options) -> Callable:
    """Return a recorder of several steps, whose time is divided by their number."""

    def record(model, inputs):
        with autogradviz.record(**options):
            for _ in range(record.steps):
                plain(model, inputs)

    record.steps = 20
    return record


def torchviz(model, inputs):
    make_dot = _peer("torchviz").make_dot
    model.zero_grad()
    loss = model(inputs)
    graph = make_dot(loss, params=dict(model.named_parameters()))
    loss.backward()
    return graph


def torchlens(model, inputs):
    trace = _peer("torchlens").trace
    model.zero_grad()
    result = trace(model, inputs)
    model(inputs).backward()
    return result


def torchview(model, inputs):
    draw_graph = _peer("torchview").draw_graph
    result = draw_graph(model, input_data=inputs, device="cpu", expand_nested=True)
    plain(model, inputs)
    return result.visual_graph


def debug_mode(model, inputs):
    from torch.utils._debug_mode import DebugMode

    with DebugMode() as mode:
        plain(model, inputs)
    return mode


def checkpoint_debug(model, inputs):
    if not getattr(model, "checkpointed", False):
        raise Missing("nothing is checkpointed")
    with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):
        plain(model, inputs)


def _peer(name: str):
    try:
        return __import__(name)
    except ImportError as error:
        raise Missing("not installed") from error


RECORDERS: dict[str, Callable] = {
    "plain": plain,
    "floor: empty mode, empty hooks": floor,
    "record()": recorded(engine="native"),
    "record(ops=False)": recorded(engine="native", ops=False),
    "record(stacks=False)": recorded(engine="native", stacks=False),
    "record(keep_steps=3)": recorded(engine="native", keep_steps=3),
    "record(), each of 20 steps": each_of_many(engine="native"),
    "record(ops=False), each of 20 steps": each_of_many(engine="native", ops=False),
    "record(keep_steps=3), each of 20 steps": each_of_many(engine="native", keep_steps=3),
    "record(), Python engine": recorded(engine="python"),
    "record(ops=False), Python engine": recorded(engine="python", ops=False),
    "record(fingerprints=True)": recorded(fingerprints=True),
    "torchviz": torchviz,
    "torchview, the forward only": torchview,
    "TorchLens, the forward only": torchlens,
    "DebugMode": debug_mode,
    "checkpoint(debug=True)": checkpoint_debug,
}


def drawn(result, folder: Path) -> Drawn:
    """Draw and save a recorded step; return its size on disk and the CPU time of drawing."""
    if isinstance(result, autogradviz.Trace):
        began = time.process_time()
        result.graph().svg(folder / "graph.svg")
        seconds = time.process_time() - began
        result.save(folder / "step.agv")
        return Drawn(len(result.log), (folder / "step.agv").stat().st_size, seconds)
    if hasattr(result, "pipe") and hasattr(result, "body"):  # an object of the graphviz package
        return Drawn(None, len(result.source.encode()), _dot(result))
    return Drawn(None, None, None)


def _dot(graph) -> float | None:
    import subprocess

    if len(graph.body) > DRAWN_NODES:
        return None
    began = time.perf_counter()
    try:
        subprocess.run(
            ["dot", "-Tsvg"],
            input=graph.source.encode(),
            stdout=subprocess.DEVNULL,
            timeout=DRAWING_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return time.perf_counter() - began
