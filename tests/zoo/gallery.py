"""The gallery: models of the zoo and public training programs, recorded; run by ``make gallery``.

It writes the interactive report and the fold of each into a folder, with an index of them, and
compares what was recorded with ``assets/gallery.json``: the graph, saved bytes, memory by kind and
findings are the same on every machine. ``--update`` stores them, and writes ``docs/gallery.md``;
equal results of models there are those of ``assets/zoo.json``, and so are their costs, of which the
last ones measured are kept.

Programs are run if ``--mirror`` or AUTOGRADVIZ_HISTORY_MIRROR names a folder that contains their
repositories, as for ``tests.history``.
"""

from __future__ import annotations

import argparse
import html
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", DIFFUSERS_VERBOSITY="error",
    OMP_NUM_THREADS="1",
)  # fmt: skip

import torch

import autogradviz
from autogradviz.analysis.formatting import format_bytes
from tests.history.mirror import AbsentError
from tests.history.run_case import warm_up
from tests.zoo import torchvision_operators
from tests.zoo.models import MODELS
from tests.zoo.program import run
from tests.zoo.programs import EXPLAINED, PROGRAMS
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
<h1>Models and training programs</h1>
<p>Each picture is a fold: what autograd keeps from forward to backward. A click opens
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
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        **described(trace, name, folder),
        "peak_by_kind": peak_by_kind(memory),
    }


def described(trace, name: str, folder: Path | None) -> dict:
    """Return the numbers and findings of a trace, and write its report and fold into a folder."""
    if folder is not None:
        trace.html(folder / f"{name}.html")
        trace.fold().svg(folder / f"{name}.svg")
    saved = trace.saved_bytes()
    return {
        "nodes": len(trace.analysis.graph.nodes),
        "saved": saved.saved,
        "at_peak": saved.at_peak,
        "sentence": trace.fold().sentence,
        "findings": [[each.confidence, each.slug, each.title] for each in trace.diagnose()],
        "audit": len(trace.audit()),
    }


def peak_by_kind(trace) -> dict[str, int]:
    """Return the bytes of each kind at the peak of all memory, of a trace that recorded it."""
    peak = trace.memory_by_kind().peak
    return {kind: count for kind, count in peak.nbytes.items() if kind != "other"}


def record_program(name: str, mirror: Path, folder: Path, *, timed: bool) -> dict:
    """Run a program with and without a recording, and compare all that it computes.

    Args:
        name: of the program.
        mirror: the folder with the repositories.
        folder: where its report and its fold are written.
        timed: whether to measure what the recording costs.
    """
    program = PROGRAMS[name]
    row = {"repository": program.repository, "commit": program.commit, "license": program.license,
           "script": program.script}  # fmt: skip
    plain = run(mirror, program)
    describe = partial(described, name=name, folder=folder.resolve())
    recorded = run(mirror, program, {}, describe)
    row["changed"] = [key for key in ("digests", "parameters") if plain[key] != recorded[key]]
    errors = [each["failure"].strip().rpartition("\n")[2] for each in (plain, recorded)]
    row |= {"failed": errors[0], "parameters": plain["parameters"]}
    if errors[0] != errors[1]:
        row["changed"].append(f"{errors[0] or 'no error'} -> {errors[1] or 'no error'}")
    if any(errors):
        return row
    memory = run(mirror, program, {"memory": True}, peak_by_kind)
    row |= {"steps": len(plain["digests"]) - 1, **recorded["kept"]}
    row |= {"peak_by_kind": memory["kept"]}
    return row | {"cost": cost_of_program(mirror, program) if timed else None}


def cost_of_program(mirror: Path, program) -> float | None:
    """Return the CPU time of recorded steps over that of steps without a recording."""
    longer, ratios = replace(program, steps=4 * program.steps), []
    for _ in range(3):
        plain, recorded = (run(mirror, longer, each)["seconds"] for each in (None, {}))
        first = program.steps if len(plain) > 2 * program.steps else 1
        if len(plain) > first:
            ratios.append(sum(recorded[first:]) / sum(plain[first:]))
    return round(statistics.median(ratios), 2) if ratios else None


def package_of(name: str) -> str:
    """Return the package that has a model."""
    if name in DIFFUSERS:
        return "diffusers"
    return PACKAGES.get(name.partition("-")[0], "transformers")


def main() -> None:
    """Record the models, compare or store what was recorded, and write the gallery."""
    options = _read_options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torchvision_operators.define()
    for package in ("transformers", "timm", "accelerate"):
        importlib.import_module(package)
    warm_up()
    options.output.mkdir(parents=True, exist_ok=True)
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    rows, differences, absent = {}, [], []
    for name in options.names or [*MODELS, *PROGRAMS]:
        try:
            rows[name] = row = _record(name, options)
        except AbsentError as error:
            absent.append(f"{name}: {error}")
            continue
        before = stored.get(name, {})
        if name in MODELS:
            row["cost"] = _zoo(name).get("ratios", {}).get("record()", before.get("cost"))
        changed = [key for key, value in row.items() if before.get(key) != value and key != "cost"]
        differences += [f"{name}: {key} {before.get(key)} -> {row[key]}" for key in changed]
        findings = "; ".join(f"{level} {slug}" for level, slug, _ in row.get("findings", ()))
        problem = row.get("failed") or "; ".join(row.get("changed", ())) or findings
        print(f"{name:26} {row.get('nodes', 0):6,} nodes  {problem or 'no findings'}", flush=True)
    known = {each: (stored | rows)[each] for each in [*MODELS, *PROGRAMS] if each in stored | rows}
    shown = {name: row for name, row in rows.items() if "sentence" in row}
    (options.output / "index.html").write_text(_index(shown), encoding="utf-8")
    print(f"The gallery is in {options.output / 'index.html'}.")
    if absent:
        where = options.mirror or "--mirror names the folder with their repositories"
        print(f"{len(absent)} programs were not run ({where}): {'; '.join(absent[:3])}")
    if options.update:
        _store(known, options.output, [name for name in SHOWN if name in rows])
    elif differences:
        sys.exit("\n".join(["Other than in assets/gallery.json:", *differences]))


def _store(rows: dict[str, dict], output: Path, shown: list[str]) -> None:
    """Write results, page and pictures of the documentation."""
    STORED.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")
    for name in shown:
        picture = ROOT / "docs" / "pictures" / "gallery" / f"{name}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text((output / f"{name}.svg").read_text("utf-8"), "utf-8")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.gallery", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models, programs; default: all")
    parser.add_argument("--output", type=Path, default=ROOT / "gallery-output" / "gallery")
    parser.add_argument("--mirror", default=os.environ.get("AUTOGRADVIZ_HISTORY_MIRROR", ""))
    parser.add_argument("--update", action="store_true", help="store what was recorded")
    options = parser.parse_args()
    unknown = set(options.names) - MODELS.keys() - PROGRAMS.keys()
    if unknown:
        names = ", ".join([*MODELS, *PROGRAMS])
        parser.error(f"nothing is named {', '.join(sorted(unknown))}; names: {names}")
    return options


def _zoo(name: str) -> dict:
    """Return the measured row of the plain training of a model."""
    rows = json.loads(ZOO.read_text(encoding="utf-8"))["rows"]
    return next((e for e in rows if (e["model"], e["variant"]) == (name, "plain")), {})


def _record(name: str, options) -> dict:
    if name in MODELS:  # in a process of its own: what earlier models left is no memory of this one
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.apply(record, (name, options.output))
    if not options.mirror:
        raise AbsentError(PROGRAMS[name].repository)
    return record_program(name, Path(options.mirror), options.output, timed=options.update)


def _index(rows: dict[str, dict]) -> str:
    cards = [
        f'<a href="{name}.html"><img src="{name}.svg" alt="" loading="lazy"><h2>{name}</h2>'
        f"<p>{html.escape(row['sentence'])}</p></a>"
        for name, row in rows.items()
    ]
    return INDEX.format(count=len(rows), cards="\n".join(cards))


def page(rows: dict[str, dict]) -> str:
    """Return the page of the documentation."""
    models = {name: row for name, row in rows.items() if name in MODELS}
    programs = {name: row for name, row in rows.items() if name in PROGRAMS}
    lines = [
        "# Gallery",
        "",
        f"{len(models)} models and {len(programs)} training programs that others wrote, with "
        "random weights, small sizes and random data, so that any machine can record them. `make "
        "gallery` writes the interactive report of each, with an index, into "
        "`gallery-output/gallery/`; the documentation site that `make docs` builds afterwards "
        "links the reports below.",
        "",
        *(f"![The fold of a step of {name}](pictures/gallery/{name}.svg)" for name in SHOWN),
        "",
        *_models(models),
        "",
        *_programs(programs),
        "",
    ]
    return "\n".join(lines)


def _models(rows: dict[str, dict]) -> list[str]:
    plain = {name: _zoo(name) for name in rows}
    equal = [name for name in rows if plain[name] and not plain[name].get("different")]
    failed = [f"{name}: {'; '.join(wrong(plain[name]))}" for name in rows if wrong(plain[name])]
    lines = [
        "## Models",
        "",
        "The second training step of each.",
        "",
        f"* **Nothing changed**: in {len(equal)} of {len(rows)}, losses, gradients, parameters, "
        "buffers and random states are bit for bit those of a step that is not recorded "
        "(`make zoo`, which also has checkpointed, LoRA and mixed-precision trainings).",
        _count_findings(rows),
        f"* **Failed**: {'; '.join(failed) if failed else 'none'}.",
        "",
        "| model | package | parameters | nodes | saved at the peak | most of all memory | "
        "record() costs | findings |",
        "|---|---|--:|--:|--:|---|--:|---|",
    ]
    for name, row in rows.items():
        lines.append(_line([f"`{name}`", package_of(name)], row))
    return [*lines, "", *_explained(rows)]


def _programs(rows: dict[str, dict]) -> list[str]:
    ran = {name: row for name, row in rows.items() if not row["failed"]}
    changed = [f"`{name}` ({'; '.join(row['changed'])})" for name, row in rows.items()
               if row["changed"]]  # fmt: skip
    failed = [f"`{name}` ({row['failed']})" for name, row in rows.items() if row["failed"]]
    repositories = len({row["repository"] for row in ran.values()})
    lines = [
        "## Training programs",
        "",
        f"Programs of {repositories} repositories, run unchanged, with their own training loops, "
        "for one to a dozen steps of their optimizers. `make gallery MIRROR=folder` reads them "
        "from copies of the repositories; none of their code is here.",
        "",
        f"* **Nothing changed**: in {len(rows) - len(changed)} of {len(rows)}, parameters, "
        "gradients and random states after each step, and the exception if there is one, are bit "
        "for bit those of a run that is not recorded.",
        f"* **Changed**: {'; '.join(changed) if changed else 'none'}.",
        _count_findings(ran),
        "* **Do not run** with this PyTorch and these packages, recorded or not: "
        f"{'; '.join(failed) if failed else 'none'}.",
        "",
        "Costs are ratios of CPU time, of the steps after the first ones. They were measured on a "
        "machine that had other work, once, and are off by up to a fifth.",
        "",
        "| program | script | steps | parameters | nodes | saved at the peak | "
        "most of all memory | record() costs | findings |",
        "|---|---|--:|--:|--:|--:|---|--:|---|",
    ]
    for name, row in ran.items():
        url = f"https://github.com/{row['repository']}/blob/{row['commit']}/{row['script']}"
        script = f"[{row['repository']}: {Path(row['script']).name}]({url})"
        lines.append(_line([f"`{name}`", script, str(row["steps"])], row))
    return [*lines, "", *_explained(ran)]


def _count_findings(rows: dict[str, dict]) -> str:
    levels = [{level for level, *_ in row["findings"]} for row in rows.values()]
    return (
        f"* **Findings**: none above a hint in {sum(each <= {'hint'} for each in levels)} of "
        f"{len(rows)}; none at all in {sum(not each for each in levels)}."
    )


def _line(first: list[str], row: dict) -> str:
    kinds = sorted(row["peak_by_kind"].items(), key=lambda each: -each[1])[:2]
    cells = [
        *first, f"{row['parameters']:,}", f"{row['nodes']:,}", format_bytes(row["at_peak"]),
        ", ".join(f"{kind} {format_bytes(nbytes)}" for kind, nbytes in kinds),
        f"{row['cost']:.2f}×" if row["cost"] else "–",
        ", ".join(f"{slug} ({level})" for level, slug, _ in row["findings"]) or "none",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _explained(rows: dict[str, dict]) -> list[str]:
    found = {name: row["findings"] for name, row in rows.items() if row["findings"]}
    lines = ["Findings:", ""] if found else []
    for name, findings in found.items():
        why = f" {EXPLAINED[name]}" if name in EXPLAINED else ""
        lines += [f"* `{name}`: {title}.{why}" for _, _, title in findings]
    return lines


if __name__ == "__main__":
    main()
