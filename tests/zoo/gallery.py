"""The gallery: each model of the zoo, recorded for a step; run by ``make gallery``.

It writes the interactive report and the fold of each model into a folder, with an index of them,
and compares what was recorded with ``assets/gallery.json``: the graph, saved bytes, memory by kind
and findings of each model are the same on every machine. ``--update`` stores them, and writes
``docs/gallery.md``; costs and equal results there are those of ``assets/zoo.json``.
"""

from __future__ import annotations

import argparse
import html
import importlib
import json
import os
import sys
import warnings
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", DIFFUSERS_VERBOSITY="error",
    OMP_NUM_THREADS="1",
)  # fmt: skip

import torch

import autogradviz
from autogradviz.analysis.formatting import format_bytes
from tests.zoo import torchvision_operators
from tests.zoo.models import MODELS
from tests.zoo.tables import wrong
from tests.zoo.training import start

ROOT = Path(__file__).parents[2]
STORED, ZOO = ROOT / "assets" / "gallery.json", ROOT / "assets" / "zoo.json"
PAGE = ROOT / "docs" / "gallery.md"
PACKAGES = {"tv": "torchvision", "pyg": "PyTorch Geometric", "timm": "timm"}
DIFFUSERS = ("unet", "unet-condition", "vae", "dit", "sd3", "flux")
SHOWN = ("gpt2", "mixtral", "unet", "timm-resnet18")
"""The models whose folds are in the documentation."""

INDEX = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>autogradviz: gallery</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }}
body {{ margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }}
main {{ display: grid; gap: 1.25rem; }}
main {{ grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); }}
a {{ border: 1px solid #8884; border-radius: 8px; color: inherit; padding: .75rem;
     text-decoration: none; }}
a:hover, a:focus-visible {{ border-color: #1f5fbf; }}
img {{ background: #fff; border-radius: 4px; height: 12rem; object-fit: contain; width: 100%; }}
h2 {{ font-size: 1rem; margin: .5rem 0 .15rem; }}
p {{ color: #777; margin: 0; }}
</style>
<h1>One training step of {count} models</h1>
<p>Each picture is the fold of a step: what autograd keeps from forward to backward. A click opens
the interactive report.</p><br>
<main>
{cards}
</main></html>
"""


def record(name: str, folder: Path | None) -> dict:
    """Record the second step of a model, and write its report and fold into a folder."""
    model, step = start(name, "plain")
    step()
    with autogradviz.record(model) as trace:
        step()
    model, step = start(name, "plain")
    step()
    with autogradviz.record(model, memory=True) as memory:
        step()
    saved, peak = trace.saved_bytes(), memory.memory_by_kind().peak
    if folder is not None:
        trace.html(folder / f"{name}.html")
        trace.fold().svg(folder / f"{name}.svg")
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        "nodes": len(trace.analysis.graph.nodes),
        "saved": saved.saved,
        "at_peak": saved.at_peak,
        "peak_by_kind": {kind: count for kind, count in peak.nbytes.items() if kind != "other"},
        "sentence": trace.fold().sentence,
        "findings": [[each.confidence, each.slug, each.title] for each in trace.diagnose()],
        "audit": len(trace.audit()),
    }


def package_of(name: str) -> str:
    """Return the package that has a model."""
    if name in DIFFUSERS:
        return "diffusers"
    return PACKAGES.get(name.partition("-")[0], "transformers")


def main() -> None:
    """Record the models, compare or store what was recorded, and write the gallery."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.gallery", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all by default")
    parser.add_argument("--output", type=Path, default=ROOT / "gallery-output" / "gallery")
    parser.add_argument("--update", action="store_true", help="store what was recorded")
    options = parser.parse_args()
    unknown = set(options.names) - MODELS.keys()
    if unknown:
        parser.error(f"no model is named {', '.join(sorted(unknown))}; names: {', '.join(MODELS)}")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torchvision_operators.define()
    importlib.import_module("transformers")
    options.output.mkdir(parents=True, exist_ok=True)
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    rows, differences = {}, []
    for name in options.names or MODELS:
        rows[name] = record(name, options.output)
        before = stored.get(name, {})
        changed = [key for key, value in rows[name].items() if before.get(key) != value]
        differences += [f"{name}: {key} {before.get(key)} -> {rows[name][key]}" for key in changed]
        findings = "; ".join(f"{level} {slug}" for level, slug, _ in rows[name]["findings"])
        print(f"{name:18} {rows[name]['nodes']:6,} nodes  {findings or 'no findings'}", flush=True)
    known = {name: (stored | rows)[name] for name in MODELS if name in stored | rows}
    (options.output / "index.html").write_text(_index(rows), encoding="utf-8")
    print(f"The gallery is in {options.output / 'index.html'}.")
    if options.update:
        STORED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(known), encoding="utf-8")
        for name in SHOWN:
            if name in rows:
                picture = ROOT / "docs" / "pictures" / "gallery" / f"{name}.svg"
                picture.parent.mkdir(parents=True, exist_ok=True)
                picture.write_text((options.output / f"{name}.svg").read_text("utf-8"), "utf-8")
    elif differences:
        sys.exit("\n".join(["Other than in assets/gallery.json:", *differences]))


def _index(rows: dict[str, dict]) -> str:
    cards = [
        f'<a href="{name}.html"><img src="{name}.svg" alt="" loading="lazy"><h2>{name}</h2>'
        f"<p>{html.escape(row['sentence'])}</p></a>"
        for name, row in rows.items()
    ]
    return INDEX.format(count=len(rows), cards="\n".join(cards))


def page(rows: dict[str, dict]) -> str:
    """Return the page of the documentation."""
    zoo = json.loads(ZOO.read_text(encoding="utf-8"))
    plain = {row["model"]: row for row in zoo["rows"] if row["variant"] == "plain"}
    equal = [name for name in rows if name in plain and not plain[name].get("different")]
    failed = [f"{name}: {'; '.join(wrong(plain[name]))}" for name in rows
              if name in plain and wrong(plain[name])]  # fmt: skip
    found = {name: row["findings"] for name, row in rows.items() if row["findings"]}
    above = [name for name, each in found.items() if any(level != "hint" for level, *_ in each)]
    lines = [
        "# Gallery",
        "",
        f"One training step of {len(rows)} models that others wrote, with random weights and small "
        "sizes, so that any machine can record them. `make gallery` records them all, and writes "
        "the interactive report of each, with an index, into `gallery-output/gallery/`; the "
        "documentation site that `make docs` builds afterwards links the reports below.",
        "",
        f"* **Nothing changed**: in {len(equal)} of {len(rows)}, losses, gradients, parameters, "
        "buffers and random states are bit for bit those of a step that is not recorded "
        "(`make zoo`, which also has checkpointed, LoRA and mixed-precision trainings).",
        f"* **Findings**: none above a hint in {len(rows) - len(above)}; none at all in "
        f"{len(rows) - len(found)}.",
        f"* **Failed**: {'; '.join(failed) if failed else 'none'}.",
        "",
        *(f"![The fold of a step of {name}](pictures/gallery/{name}.svg)" for name in SHOWN),
        "",
        "| model | package | parameters | nodes | saved at the peak | most of all memory | "
        "record() costs | findings |",
        "|---|---|--:|--:|--:|---|--:|---|",
    ]
    for name, row in rows.items():
        kinds = sorted(row["peak_by_kind"].items(), key=lambda each: -each[1])[:2]
        ratio = plain.get(name, {}).get("ratios", {}).get("record()")
        cells = [
            f"`{name}`", package_of(name), f"{row['parameters']:,}", f"{row['nodes']:,}",
            format_bytes(row["at_peak"]),
            ", ".join(f"{kind} {format_bytes(nbytes)}" for kind, nbytes in kinds),
            f"{ratio:.2f}×" if ratio else "–",
            ", ".join(f"{slug} ({level})" for level, slug, _ in row["findings"]) or "none",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_explained(found), ""]
    return "\n".join(lines)


def _explained(found: dict[str, list]) -> list[str]:
    if not found:
        return []
    lines = ["## Findings", ""]
    for name, findings in found.items():
        lines += [f"* `{name}`: {title}" for _, _, title in findings]
    return lines


if __name__ == "__main__":
    main()
