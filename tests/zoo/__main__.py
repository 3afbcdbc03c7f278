"""Record models of other packages: ``python -m tests.zoo [NAME...]``; run by ``make zoo``.

For each model, and each way to train it, results with and without a recording are compared bit
for bit, findings above "hint" are counted as false alarms, and the cost is measured. The results
go into ``assets/zoo.json`` and, as tables, into ``assets/zoo.md``.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.zoo.models import MODELS
from tests.zoo.tables import tables, wrong

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "assets" / "zoo.json"
TABLES = RESULTS.with_suffix(".md")
PACKAGES = ("torch", "transformers", "diffusers", "peft", "timm", "torch_geometric", "torchvision")


def measured(name: str, variants: list[str], limit_s: int) -> list[dict]:
    """Return the results of a model, measured in a process of its own."""
    command = [sys.executable, str(HERE / "measure.py"), name, *variants]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            output, errors = process.communicate(timeout=limit_s)
            ended = f"ended with {process.returncode}: {errors[-500:]}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, ended = process.communicate()[0], f"over {limit_s} s"
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{"model"')]
    expected = [each for each in MODELS[name].variants if each in variants or not variants]
    missing = expected[len(found) :]
    return found + [{"model": name, "variant": each, "failed": ended} for each in missing]


def main() -> None:
    """Measure the chosen models and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all by default")
    parser.add_argument("--variant", action="append", default=[], help="a way to train them")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--limit", type=int, default=240, help="seconds per model")
    options = parser.parse_args()
    unknown = set(options.names) - MODELS.keys()
    if unknown:
        parser.error(f"no model is named {', '.join(sorted(unknown))}; names: {', '.join(MODELS)}")
    rows = {}
    if RESULTS.exists():
        before = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
        rows = {(each["model"], each["variant"]): each for each in before}
    chosen = options.names or list(MODELS)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(measured, each, options.variant, options.limit) for each in chosen]
        for done in concurrent.futures.as_completed(waiting):
            for row in done.result():
                rows[row["model"], row["variant"]] = row
                print(_line(row), flush=True)
    _write(list(rows.values()))
    sys.exit(any(wrong(row) for row in rows.values() if row["model"] in chosen))


def _line(row: dict) -> str:
    took = "  ".join(f"{mode} {ratio:.2f}" for mode, ratio in row.get("ratios", {}).items())
    told = "; ".join(wrong(row))
    return f"{row['model']:18} {row['variant']:10} {row.get('plain_ms', 0):8.1f} ms  {took}  {told}"


def _write(rows: list[dict]) -> None:
    order = {(name, each): None for name, entry in MODELS.items() for each in entry.variants}
    numbers = {key: number for number, key in enumerate(order)}
    rows = [row for row in rows if (row["model"], row["variant"]) in numbers]
    rows.sort(key=lambda row: numbers[row["model"], row["variant"]])
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    written = {"versions": versions, "rows": rows}
    RESULTS.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    TABLES.write_text(tables(rows, versions), encoding="utf-8")


if __name__ == "__main__":
    main()
