"""What a million events and ten million cost: ``python tests/bench_log.py [EVENTS]``.

The first are a real recording, a training of small steps, with old events sealed and without. The
second are the rows of such a training, told again and again with other numbers to the same log.
Writes ``assets/bench_log.md``; each run is a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from bench_flight import Net, resident

import autogradviz
from autogradviz.events import EVENT_TYPES, OpCalled, RecordingEnded, field_names
from autogradviz.log import Log, columns_of, load, save
from autogradviz.recorder import sealing

TARGET = Path(__file__).parent.parent / "assets" / "bench_log.md"
WARM, SPAN = 20, 20  # steps
LISTS = {"inputs", "outputs", "written", "next_node_ids", "input_tensor_ids", "root_tensor_ids"}
NUMBERS = {"seq", "sequence_nr", "op_seq"}


def train(steps):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


def record(events, *, sealed):
    """Record a training; return its log, memory for each event, and CPU time of sealing it."""
    if not sealed:
        sealing.SEAL = sealing.SEAL_AFTER_STEP = sys.maxsize
    spent = []

    def seal(sealer, seq):
        began = time.process_time()
        original(sealer, seq)
        spent.append(time.process_time() - began)

    original, sealing.Sealer._seal = sealing.Sealer._seal, seal
    with autogradviz.record() as trace:
        recorder = trace._held.__self__
        steps = train(sys.maxsize)
        for _ in range(WARM):
            next(steps)
        before, first = resident(), recorder.event_count
        while recorder.event_count < events:
            next(steps)
        told = recorder.event_count - first
        nbytes = resident() - before
    return trace.log, nbytes / told, sum(spent) / told


def repeat(events):
    """Return a log of a training's rows, told again until there are enough, sealed meanwhile."""
    with autogradviz.record() as trace:
        ends = [trace._held.__self__.event_count for _ in train(WARM + SPAN)]
    first, last = ends[WARM - 1], ends[-1]
    span = {
        kind: [row for row in trace.log.rows(kind) if first <= row[0] < last]
        for kind in EVENT_TYPES
    }
    log = Log()
    before = resident()
    for told in range(0, events, last - first):
        for kind, rows in span.items():
            shifted = [_shifted(kind, row, told) for row in rows]
            log.extend_rows(kind, shifted)
        if log.recent_count > sealing.SEAL:
            log.seal(first + told + (last - first) - sealing.STAY)
    log.extend_rows(RecordingEnded, [(first + events * 2, 0, 0, None, len(log))])
    return log, (resident() - before) / len(log)


def _shifted(kind, row, by):
    """Return a row whose ids and numbers are others."""
    return tuple(
        _add(value, by) if name in LISTS | NUMBERS or name.endswith("_id") else value
        for name, value in zip(field_names(kind), row, strict=True)
    )


def _add(value, by):
    if isinstance(value, tuple):
        return tuple(_add(each, by) for each in value)
    return value + by if isinstance(value, int) else value


def measure(what, events):
    """Return the figures of one run."""
    if what == "repeated":
        log, nbytes = repeat(events)
        seconds = None
    else:
        log, nbytes, seconds = record(events, sealed=what == "sealed")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.agv"
        save_s = _timed(save, log, path)
        size = path.stat().st_size / len(log)
        del log
        load_s = _timed(load, path)
        columns_s = _timed(columns_of, path, OpCalled)
    return [what, events, nbytes, peak, seconds, save_s, load_s, columns_s, size]


def _timed(work, *arguments):
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


HEADS = (
    "", "events", "memory an event", "peak, PyTorch included", "sealing an event", "save", "load",
    "columns of the operators", "file, an event",
)  # fmt: skip
NAMES = {
    "rows": "recorded, never sealed",
    "sealed": "recorded",
    "repeated": "told again and again",
}


def main(events):
    lines = [
        "What many events cost: CPU time, one thread (`python tests/bench_log.py`).",
        "",
        f"| {' | '.join(HEADS)} |",
        "|" + "---|" * len(HEADS),
    ]
    for what, count in (("rows", events), ("sealed", events), ("repeated", 10 * events)):
        command = [sys.executable, __file__, what, str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        _, _, nbytes, peak, seconds, save_s, load_s, columns_s, size = json.loads(done.stdout)
        cpu = "–" if not seconds else f"{seconds * 1e6:.1f} µs"
        lines.append(
            f"| {NAMES[what]} | {count:,} | {nbytes:.0f} B | {peak / 1e6:,.0f} MB | {cpu} "
            f"| {save_s:.2f} s | {load_s:.2f} s | {columns_s:.2f} s | {size:.1f} B |"
        )
    text = "\n".join(lines) + "\n"
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.stdout.write(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
