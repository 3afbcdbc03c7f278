"""Cost of recording a training step, by autogradviz and by other tools; run by ``make bench``.

Each pair of a training step and a recorder is measured in a separate process on one thread. The
plain step and the recorded step alternate. The table has the median of the ratios of their CPU
times, and half their interquartile range as noise. The first repetition is a warm-up.
``overhead.py NAME...`` measures only the tables whose titles begin with a name.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from run_cell import run_cell

TABLE = Path(__file__).parents[2] / "assets" / "bench.md"
TURNS = (5, 41)  # at least, at most
FEWEST_TURNS = 2  # of turns so long that TURNS[0] of them exceed the limit
SECONDS = float(os.environ.get("BENCH_SECONDS", "15"))  # per cell, approximately
LIMIT_S = 180  # per cell, also for a slow tool
MIB = 2**20
FLOOR = "floor: empty mode, empty hooks"
HEAD = "| | CPU time | per event | peak memory | drawing | file |\n|---|---|---|---|---|---|\n"


def measure(step: str, recorder: str) -> dict:
    """Measure one cell of the table, in this process."""
    import torch
    from recorders import RECORDERS, Missing, drawn, plain
    from training_steps import STEPS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = STEPS[step]()
    record = RECORDERS[recorder]
    pairs, began, result = [], time.monotonic(), None
    try:
        while _more_turns(len(pairs), time.monotonic() - began):
            result = None
            pair = [_seconds(plain, model, inputs)[0]]
            seconds, result = _seconds(record, model, inputs)
            pairs.append((*pair, seconds / getattr(record, "steps", 1)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        with tempfile.TemporaryDirectory() as folder:
            events, file_bytes, drawing_s = drawn(result, Path(folder))
    except Missing as missing:
        return {"missing": str(missing)}
    except Exception as error:
        return {"missing": f"{type(error).__name__}"}
    return {
        "pairs": pairs[1:],
        "peak": peak,
        "events": events,
        "file_bytes": file_bytes,
        "drawing_s": drawing_s,
    }


def _more_turns(turns: int, elapsed_s: float) -> bool:
    if turns <= TURNS[0]:
        return turns <= FEWEST_TURNS or elapsed_s < LIMIT_S / 2
    return turns <= TURNS[1] and elapsed_s < SECONDS


def _seconds(work, *args):
    gc.collect()
    began = time.process_time()
    result = work(*args)
    return time.process_time() - began, result


def row(recorder: str, cell: dict, plain: dict) -> str:
    """Return one row of a step's table."""
    if "missing" in cell:
        return f"| {recorder} | {cell['missing']} | | | | |"
    ratios = [seconds / base for base, seconds in cell["pairs"]]
    lower, ratio, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    noise = (upper - lower) / 2
    base = statistics.median(base for base, _ in cell["pairs"])
    events = cell["events"]
    each = f"{_added(cell) / events * 1e6:.1f} µs × {events:,}" if events else ""
    took = f"{base * 1e3:,.1f} ms" if recorder == "plain" else f"{ratio:.2f}×"
    more = (cell["peak"] - plain["peak"]) / MIB
    peak = f"{cell['peak'] / MIB:,.0f} MiB" if recorder == "plain" else f"{more:+,.0f} MiB"
    drawing = "" if cell["drawing_s"] is None else f"{cell['drawing_s']:.2f} s"
    size = "" if cell["file_bytes"] is None else f"{cell['file_bytes'] / 1024:,.0f} KiB"
    return f"| {recorder} | {took} ± {noise:.2f} | {each} | {peak} | {drawing} | {size} |"


def _added(cell: dict) -> float:
    """Return the median of the added CPU time, in seconds."""
    return statistics.median(seconds - base for base, seconds in cell["pairs"])


def where(cells: dict[str, dict]) -> str:
    """Return a breakdown of the added time, measured by turning off parts of a recording."""
    names = ("record()", "record(ops=False)", "record(stacks=False)", FLOOR)
    if any("missing" in cells[name] for name in names):
        return ""
    full, graph, bare, floor = (_added(cells[name]) * 1e3 for name in names)
    return (
        f"\nrecord() adds {_ms(full)}: graph, saved tensors and modules {_ms(graph)}, operators "
        f"{_ms(full - graph)}, of which their stacks {_ms(full - bare)}. "
        f"An empty mode and empty hooks add {_ms(floor)}.\n"
    )


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.1f} ms" if milliseconds > 0 else "less than the noise"


def child(step: str, recorder: str) -> dict:
    """Measure one cell in a separate process."""
    found = run_cell(__file__, step, recorder, limit_s=LIMIT_S)
    return {"missing": found} if isinstance(found, str) else found


def table(step: str) -> str:
    """Measure one step with every recorder and return its table."""
    from recorders import RECORDERS

    cells: dict[str, dict] = {}
    for recorder in RECORDERS:
        cells[recorder] = child(step, recorder)
        sys.stdout.write(f"{step}: {row(recorder, cells[recorder], cells['plain'])}\n")
        sys.stdout.flush()
    rows = [row(recorder, cell, cells["plain"]) for recorder, cell in cells.items()]
    return f"### {step}\n\n{HEAD}" + "\n".join(rows) + "\n" + where(cells)


def main(names: tuple[str, ...]) -> None:
    """Measure the tables whose titles begin with one of the names, or all tables."""
    import compiled_steps
    import conditions
    import cost_per_event
    import readme_table
    from training_steps import STEPS

    tables = {step: partial(table, step) for step in STEPS}
    tables[compiled_steps.TITLE] = compiled_steps.table
    tables[cost_per_event.TITLE] = cost_per_event.table
    for name in names:
        if not any(title.startswith(name) for title in tables):
            sys.exit(f"no table's title begins with {name!r}; titles: {', '.join(tables)}")
    for title, measured in tables.items():
        if not names or title.startswith(names):
            found = f"{measured().rstrip()}\n\n{conditions.line()}\n"
            written = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
            parts = {part.splitlines()[0]: part for part in written.split("### ") if part}
            parts[title] = found.removeprefix("### ")
            kept = [f"### {parts[each].rstrip()}\n" for each in tables if each in parts]
            TABLE.write_text("\n".join(kept), encoding="utf-8")
            readme_table.main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        sys.stdout.write(json.dumps(measure(*sys.argv[2:])) + "\n")
    else:
        main(tuple(sys.argv[1:]))
