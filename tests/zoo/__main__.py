"""Record models of other packages: ``python -m tests.zoo [NAME...]``; run by ``make zoo``.

For each model, and each way to train it, results with and without a recording are compared bit
for bit, findings above "hint" are counted as false alarms, and the cost is measured. The results
go into ``assets/zoo.json`` and, as tables, into ``assets/zoo.md``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", DIFFUSERS_VERBOSITY="error",
    OMP_NUM_THREADS="1",
)  # fmt: skip
sys.path += [str(HERE.parent / "unit"), str(HERE.parent / "bench")]  # reads reports; conditions

import conditions  # noqa: E402

from tests.zoo import torchvision_operators  # noqa: E402
from tests.zoo.models import MODELS  # noqa: E402
from tests.zoo.tables import miscounted, tables, wrong  # noqa: E402

RESULTS = HERE.parents[1] / "assets" / "zoo.json"
TABLES = RESULTS.with_suffix(".md")
OWN_PARTS = ("plan", "fit", "memory", "device")
"""Measurements that are made one at a time: plans, budgets, live bytes on the host and a device."""
PACKAGES = ("torch", "transformers", "diffusers", "peft", "timm", "torch_geometric", "torchvision")


class Running:
    """A model that is being measured in a process of its own."""

    def __init__(self, name: str, variants: list[str], *, parts: str) -> None:
        from tests.zoo.measure import measure

        self.name, self.variants, self.began = name, variants, time.monotonic()
        descriptor, self.path = tempfile.mkstemp(suffix=".jsonl")
        os.close(descriptor)
        # A fork has the packages imported already, which takes longer than a few steps.
        self.process = multiprocessing.get_context("fork").Process(
            target=measure, args=(name, variants), kwargs={"parts": parts, "path": self.path}
        )
        self.process.start()

    def ended(self, limit_s: float) -> bool:
        """Return whether the process has ended; it is ended after so many seconds."""
        if time.monotonic() - self.began > limit_s:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def rows(self) -> list[dict]:
        """Return the results, also of what the process did not reach."""
        text = Path(self.path).read_text(encoding="utf-8")
        Path(self.path).unlink()
        found = [json.loads(line) for line in text.splitlines()]
        why = f"ended with {self.process.exitcode} after {time.monotonic() - self.began:.0f} s"
        missing = self.variants[len(found) :]
        return found + [{"model": self.name, "variant": each, "failed": why} for each in missing]


def main() -> None:
    """Measure the chosen models and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all by default")
    parser.add_argument("--variant", action="append", default=[], help="a way to train them")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--limit", type=int, default=240, help="seconds per model")
    parser.add_argument("--parts", choices=("check", "cost", "both", *OWN_PARTS), default="both")
    options = parser.parse_args()
    unknown = set(options.names) - MODELS.keys()
    if unknown:
        parser.error(f"no model is named {', '.join(sorted(unknown))}; names: {', '.join(MODELS)}")
    torchvision_operators.define()
    for package in PACKAGES:
        importlib.import_module(package)
    rows, failed = _before(), False
    for found in _measured(options):
        key = found["model"], found["variant"]
        before = rows.get(key, {})
        if "failed" in found and options.parts in {"cost", *OWN_PARTS} and before:
            row = before | {"untimed": found["failed"]}
        else:
            row = ({} if "failed" in before else before) | found
            if "ratios" in found:
                row["sources"] = conditions.digest()
        rows[key] = row
        failed |= bool(wrong(row)) or miscounted(row)
        print(_line(row), flush=True)
        _write(list(rows.values()))
    sys.exit(failed)


def _before() -> dict[tuple[str, str], dict]:
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    for each in found:
        if each.get("sources") != conditions.digest():  # a cost of other code
            each.pop("ratios", None)
    return {(each["model"], each["variant"]): each for each in found}


def _measured(options):
    """Yield the results of all models, of as many at a time as there are jobs."""
    waiting, running = options.names or list(MODELS), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            variants = [each for each in MODELS[name].variants if _chosen(each, options.variant)]
            if variants:
                running.append(Running(name, variants, parts=options.parts))
        for each in [each for each in running if each.ended(options.limit)]:
            running.remove(each)
            yield from each.rows()
        time.sleep(0.1)


def _chosen(variant: str, wanted: list[str]) -> bool:
    return not wanted or variant in wanted


def _line(row: dict) -> str:
    took = "  ".join(f"{mode} {ratio:.2f}" for mode, ratio in row.get("ratios", {}).items())
    problems = "; ".join(wrong(row))
    name = f"{row['model']:18} {row['variant']:10}"
    return f"{name} {row.get('plain_ms', 0):8.1f} ms  {took}  {problems}"


def _write(rows: list[dict]) -> None:
    order = {(name, each): None for name, entry in MODELS.items() for each in entry.variants}
    numbers = {key: number for number, key in enumerate(order)}
    rows = [row for row in rows if (row["model"], row["variant"]) in numbers]
    rows.sort(key=lambda row: numbers[row["model"], row["variant"]])
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    written = {"versions": versions, "rows": rows}
    RESULTS.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    TABLES.write_text(f"{tables(rows, versions)}\n{conditions.line()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
