"""Memory cost of a long flight recording.

    python tests/bench/flight_recorder_memory.py [STEPS]

Trains a small checkpointed model for 10,000 steps under ``record(keep_steps=3)``, and once more
under ``record()``, which keeps every step; writes the table to ``assets/flight.md`` and both
curves to ``assets/flight.svg``.
"""

import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import conditions
import torch
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import RecordingEnded

POINTS = 100  # of the curve; the table has every tenth
PAGE = os.sysconf("SC_PAGE_SIZE")
ASSETS = Path(__file__).parents[2] / "assets"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.inner = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(0.1))
        self.last = torch.nn.Linear(32, 1)

    def forward(self, x):
        hidden = checkpoint(self.inner, self.first(x), use_reentrant=False)
        return self.last(hidden.relu())


def resident():
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def train(steps, keep_steps):
    """Return ``POINTS`` tuples of a training: step, resident memory.

    For a flight recording also the number of events held, and the number of events so far.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    points = []
    with autogradviz.record(model, keep_steps=keep_steps) as trace:
        for step in range(steps + 1):
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (steps // POINTS) == 0 and keep_steps is None:
                points.append((step, resident()))
            elif step % (steps // POINTS) == 0:
                held = trace.snapshot().log
                points.append((step, resident(), len(held), held.of(RecordingEnded)[0].seq))
    return points


def main(steps):
    # In separate processes, so that neither starts with the memory of the other.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        held = processes.submit(train, steps, 3).result()
        whole = processes.submit(train, steps, None).result()
    write(held, whole)


def write(points, whole):
    lines = [
        "Resident memory of a training under `record(keep_steps=3)` "
        "(`python tests/bench/flight_recorder_memory.py`). `record()`, which keeps every step, "
        f"ends at {whole[-1][1] / 1e6:.1f} MB.",
        "",
        "![Resident memory is flat from the first steps to the last](flight.svg)",
        "",
        "| step | events so far | events in memory | resident memory |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {step:,} | {seq:,} | {held:,} | {nbytes / 1e6:.1f} MB |"
        for step, nbytes, held, seq in points[:: max(len(points) // 10, 1)]
    ]
    text = "\n".join([*lines, "", conditions.line()]) + "\n"
    (ASSETS / "flight.md").write_text(text, encoding="utf-8")
    (ASSETS / "flight.svg").write_text(curve(points, whole), encoding="utf-8")
    sys.stdout.write(text)


WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 260, 64, 44, 696, 208
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a }
.title { font-size: 14px; font-weight: 600; fill: #1f2328 }
.page { fill: #ffffff } .rule { stroke: #d0d7de }
.held { stroke: #0b6e4f; fill: none; stroke-width: 2 } .end { fill: #0b6e4f; font-weight: 600 }
.all { stroke: #8c959f; fill: none; stroke-width: 1.5; stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1 } .title { fill: #e6e6e6 } .page { fill: #0d1117 } .rule { stroke: #30363d }
  .held { stroke: #4cc9a0 } .end { fill: #4cc9a0 } .all { stroke: #7d8590 }
}
"""


def curve(points, whole):
    """Return resident memory over steps as SVG, for a flight recording and a full recording."""
    steps, events = points[-1][0], points[-1][3]
    top = math.ceil(max(nbytes for _, nbytes in whole) / 2e8) * 2e8

    def place(step, nbytes):
        x = LEFT + (RIGHT - LEFT) * step / steps
        return f"{x:.1f},{BOTTOM - (BOTTOM - TOP) * nbytes / top:.1f}"

    held = " ".join(place(step, nbytes) for step, nbytes, _, _ in points)
    all_steps = " ".join(place(step, nbytes) for step, nbytes in whole)
    marks = [
        f'<line class="rule" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{nbytes / 1e6:.0f} MB</text>'
        for nbytes in (0, top / 4, top / 2, 3 * top / 4, top)
        for y in [round(BOTTOM - (BOTTOM - TOP) * nbytes / top)]
    ]
    marks += [
        f'<text x="{LEFT + (RIGHT - LEFT) * part / 4:.0f}" y="{BOTTOM + 20}" '
        f'text-anchor="{anchor}">{steps * part // 4:,}</text>'
        for part, anchor in enumerate(("start", "middle", "middle", "middle", "end"))
    ]
    last = points[-1][1]
    x, y = place(steps, last).split(",")
    x_all, y_all = place(*whole[-1]).split(",")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img">',
            f"<title>Resident memory of {steps:,} steps under record(keep_steps=3)</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text class="title" x="{LEFT}" y="26">Resident memory, record(keep_steps=3)</text>',
            *marks,
            f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 40}" text-anchor="middle">steps</text>',
            f'<polyline class="all" points="{all_steps}"/>',
            f'<text x="{x_all}" y="{float(y_all) - 10:.0f}" text-anchor="end">'
            f"record(), every step held: {whole[-1][1] / 1e6:.0f} MB</text>",
            f'<polyline class="held" points="{held}"/>',
            f'<text class="end" x="{x}" y="{float(y) + 18:.0f}" text-anchor="end">'
            f"{last / 1e6:.0f} MB after {events:,} events</text>",
            "</svg>",
        ]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
