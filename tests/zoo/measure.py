"""Checks and times the recording of one model, in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import re
import statistics
import tempfile
import time
import traceback
import warnings
from base64 import b64decode
from pathlib import Path

import torch
from make_scene import unpack

import autogradviz
from tests.zoo.budgets import fit_budgets
from tests.zoo.plans import TRAINED, compare_live_bytes, compare_plans
from tests.zoo.training import outcome, start

MODES = {"record()": {}, "ops=False": {"ops": False}, "keep_steps=3": {"keep_steps": 3}}
ROUNDS = 3
BLOCK_S = 0.1
"""CPU time of the plain steps between two recordings, approximately."""
PRUNED = 8
"""Steps at least with a flight recorder, which does not prune after each of them."""
WARM_UP = 2
"""Steps that are not timed, at the beginning of a recording."""


def check(name: str, variant: str) -> dict:
    """Compare the results with and without a recording; diagnose it and write its report."""
    plain, repeated = (outcome(name, variant, lambda _: contextlib.nullcontext()) for _ in range(2))
    varying = set(_changed(plain, repeated))
    different, traces = {}, []
    modes = {"record()": {}} if variant == "compile" else MODES
    for mode, options in modes.items():

        @contextlib.contextmanager
        def recording(model, options=options):
            with autogradviz.record(model, **options) as trace:
                traces.append(trace)
                yield

        found = outcome(name, variant, recording)
        different[mode] = _changed(plain, found, varying)
    again = outcome(name, variant, lambda _: contextlib.nullcontext())
    different["after recording"] = _changed(plain, again, varying)
    different = {mode: names for mode, names in different.items() if names}
    trace = traces[0]
    findings = [
        [each.confidence, each.slug, each.title, _is_confirmed(each, name, variant, plain)]
        for each in trace.diagnose()
    ]
    return {
        "different": different, "varying": sorted(varying), "findings": findings,
        "report_bytes": _report(trace),
    }  # fmt: skip


def _changed(plain: dict, found: dict, varying: set[str] = frozenset()) -> list[str]:
    """Return the names of results that differ, but those that vary without a recording."""
    names = (plain.keys() | found.keys()) - varying
    return sorted(name for name in names if plain.get(name) != found.get(name))


def _is_confirmed(finding, name: str, variant: str, found: dict[str, bytes]) -> bool:
    """Return whether a finding about checkpointing names a buffer that it really changes.

    Batch normalization in a region updates its running statistics again in the recomputation.
    """
    key = f"buffer {finding.title.split()[0]}"
    if variant != "checkpoint" or key not in found:
        return False
    return outcome(name, "plain", lambda _: contextlib.nullcontext())[key] != found[key]


def _report(trace) -> int:
    """Return the size of the HTML report; its payload is read as the viewer does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        trace.html(path)
        page = path.read_text(encoding="utf-8")
    packed = re.search(r'<script type="([^"]+)" id="payload">([^<]+)</script>', page)
    payload = unpack(b64decode(packed[2]))
    if not payload:
        raise ValueError("the payload is empty")
    return len(page)


def cost(name: str, variant: str) -> dict:
    """Return CPU times per step: plain, and as ratios in the steady state of recordings.

    "shown" is the sum of the phases that recordings with operators show, for one step, over the
    time of a plain step on the wall clock.
    """
    model, step = start(name, variant)
    _timed(step, WARM_UP)
    # What was imported takes no part in garbage collections, which would else outlast the steps.
    gc.freeze()
    steps = max(2, min(40, round(BLOCK_S / _timed(step, 2))))
    plain, walls = [_timed(step, steps)], [_timed(step, steps, time.perf_counter)]
    ratios, shown = {mode: [] for mode in MODES}, []
    for _ in range(ROUNDS):
        for mode, options in MODES.items():
            with autogradviz.record(model, **options) as trace:
                _timed(step, WARM_UP)
                recorded = _timed(step, max(steps, PRUNED) if "keep_steps" in options else steps)
            plain.append(_timed(step, steps))
            ratios[mode].append(2 * recorded / (plain[-1] + plain[-2]))
            if mode == "record()":
                walls.append(_timed(step, steps, time.perf_counter))
                shown.append(2 * _shown(trace) / (steps + WARM_UP) / (walls[-1] + walls[-2]))
            del trace
    medians = {mode: round(statistics.median(each), 3) for mode, each in ratios.items()}
    return {
        "plain_ms": round(statistics.median(plain) * 1e3, 2),
        "ratios": medians,
        "shown": round(statistics.median(shown), 3),
    }


def _shown(trace) -> float:
    times = trace.phase_times()
    return (times.forward_ns + times.backward_ns + times.optimizer_ns) / 1e9


def _timed(step, times: int, clock=time.process_time) -> float:
    """Return the time of a step in seconds, by default on the CPU, all threads together."""
    gc.collect()
    began = clock()
    for _ in range(times):
        step()
    return (clock() - began) / times


def _on_device(name: str, variant: str) -> dict:
    """Compare live bytes on the device of the tests, which has no kernels for some models."""
    importlib.import_module("tests.accelerator.sim")
    try:
        return {"on_device": compare_live_bytes(name, variant, "sim:0")}
    except (RuntimeError, NotImplementedError) as error:
        return {"not_on_device": str(error).splitlines()[0][:120]}


def measure(name: str, variants: list[str], *, parts: str, path: str) -> None:
    """Write one line of JSON for each way in which a model is trained."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for variant in variants:
        try:
            found = check(name, variant) if parts in {"check", "both"} else {}
            found |= cost(name, variant) if parts in {"cost", "both"} else {}
            if parts == "plan":
                found["plans"] = compare_plans(name, variant)
            if parts == "fit" and variant == "plain":
                found["budgets"] = fit_budgets(name)
            if parts == "memory" and variant in TRAINED:
                found["live"] = compare_live_bytes(name, variant)
            if parts == "device" and variant in TRAINED:
                found |= _on_device(name, variant)
        except Exception:
            found = {"failed": traceback.format_exc()}
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"model": name, "variant": variant, **found}) + "\n")
