"""Cost of a million and of ten million events: ``python tests/bench/large_logs.py [EVENTS]``.

Records a training of small steps: a million events with and without compression of old events, ten
million in memory and in a streamed file, and a million events of a single step. Writes
``assets/bench_log.md``. Each run is a separate process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import conditions
import torch
from flight_recorder_memory import Net, resident
from training_steps import RNN

import autogradviz
from autogradviz.event_log import columns_of, load, save
from autogradviz.events import OpCalled
from autogradviz.recorder.retention import keep_all_compressed

TARGET = Path(__file__).parents[2] / "assets" / "bench_log.md"
WARM = 20  # steps
REPORTED = 2_000_000  # events; no report is made of more


def train():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


def plain(steps):
    """Return the CPU time of an unrecorded step."""
    training = train()
    for _ in range(WARM):
        next(training)
    began = time.process_time()
    for _ in range(steps):
        next(training)
    return (time.process_time() - began) / steps


def record(events, path):
    """Record a training; return its log, and memory and CPU time per event."""
    plain_s = plain(1_000)
    with autogradviz.record(path=path) as trace:
        recorder = trace._source.copy.__self__
        training = train()
        for _ in range(WARM):
            next(training)
        before, first, steps = resident(), recorder.session.event_count, 0
        began = time.process_time()
        while recorder.session.event_count < events:
            next(training)
            steps += 1
        seconds = time.process_time() - began - steps * plain_s
        recorded = recorder.session.event_count - first
        nbytes = resident() - before
    return trace, nbytes / recorded, seconds / recorded


def record_step(events):
    """Record one step of an RNN; return the same as ``record``, minus the unrecorded cost."""
    torch.set_num_threads(1)
    model = RNN()
    inputs = torch.rand(200, 1, 16)

    def step(count):
        began, before = time.process_time(), resident()
        sum(model(inputs) for _ in range(count)).backward()
        return time.process_time() - began, resident() - before

    with autogradviz.record() as trace:
        step(1)
    count = max(events // len(trace.log), 1)
    step(count)
    plain_s, plain_nbytes = step(count)
    with autogradviz.record() as trace:
        seconds, nbytes = step(count)
    recorded = len(trace.log)
    return trace, (nbytes - plain_nbytes) / recorded, (seconds - plain_s) / recorded


def measure(kind, events):
    """Return the measurements of one run."""
    if kind == "rows":
        keep_all_compressed.COMPRESS = keep_all_compressed.COMPRESS_AFTER_STEP = sys.maxsize
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.agv"
        if kind == "step":
            trace, nbytes, seconds = record_step(events)
        else:
            trace, nbytes, seconds = record(events, path if kind == "file" else None)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        save_s = None if kind == "file" else _timed(save, trace.log, path)
        del trace
        load_s = _timed(load, path)
        columns_s = _timed(columns_of, path, OpCalled)
        report = Path(folder) / "report.html"
        html_s = _timed(autogradviz.load(path).html, report) if events <= REPORTED else None
        size = None if html_s is None else report.stat().st_size
        return [
            nbytes, peak, seconds, save_s, load_s, columns_s, path.stat().st_size / events, html_s,
            size,
        ]  # fmt: skip


def _timed(work, *arguments):
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


HEADS = (
    "", "events", "memory per event", "peak, with PyTorch", "recording, per event", "save", "load",
    "reading the ops' columns", "file, per event", "report", "its size",
)  # fmt: skip
NAMES = {
    "rows": "in memory, uncompressed",
    "compressed": "in memory",
    "step": "in memory, a single step",
    "file": "streamed to a file",
}


def main(events):
    lines = [
        "Memory and CPU time of large recordings, one thread (`python tests/bench/large_logs.py`).",
        "",
        f"| {' | '.join(HEADS)} |",
        "|" + "---|" * len(HEADS),
    ]
    runs = ("rows", "compressed", "step", "compressed", "file")
    for kind, count in zip(runs, (events, events, events, 10 * events, 10 * events), strict=True):
        command = [sys.executable, __file__, kind, str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        nbytes, peak, seconds, save_s, load_s, columns_s, size, html_s, page = json.loads(
            done.stdout
        )
        saved = "–" if save_s is None else f"{save_s:.2f} s"
        lines.append(
            f"| {NAMES[kind]} | {count:,} | {nbytes:.0f} B | {peak / 1e6:,.0f} MB "
            f"| {seconds * 1e6:.1f} µs | {saved} | {load_s:.2f} s | {columns_s:.2f} s "
            f"| {size:.1f} B "
            + ("| – | – |" if html_s is None else f"| {html_s:.1f} s | {page / 1e6:.1f} MB |")
        )
    text = "\n".join([*lines, "", conditions.line()]) + "\n"
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.stdout.write(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
