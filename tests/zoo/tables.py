"""The results of the zoo as Markdown."""

from __future__ import annotations

import math
import statistics

MODES = ("record()", "ops=False", "keep_steps=3")
TRAINED = {
    "plain": "plain",
    "checkpoint": "checkpointed",
    "bf16": "autocast to bfloat16",
    "lora": "LoRA",
    "compile": "compiled (aot_eager)",
}


def wrong(row: dict) -> list[str]:
    """Return the problems of a model, one line each."""
    if "failed" in row:
        return [row["failed"].strip().splitlines()[-1]]
    changed = [
        f"{mode} changed {', '.join(keys[:3])}" for mode, keys in row.get("different", {}).items()
    ]
    return changed + [
        f"{confidence} finding: {slug}"
        for confidence, slug, _, confirmed in row.get("findings", ())
        if confidence != "hint" and not confirmed
    ]


def miscounted(row: dict) -> bool:
    """Return whether live bytes of a recording are not those of an independent count."""
    return any(row[key][1] for key in ("live", "on_device") if key in row)


def tables(rows: list[dict], versions: dict[str, str]) -> str:
    """Return the summary, one row per way to train, and a table with one row per model."""
    failed = [
        f"{row['model']}, {row['variant']}: {'; '.join(wrong(row))}" for row in rows if wrong(row)
    ]
    varying = [
        f"{row['model']}, {row['variant']}: {len(row['varying'])} results differ between two runs "
        "without a recording, and were not compared"
        for row in rows if row.get("varying")
    ]  # fmt: skip
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    models = len({row["model"] for row in rows})
    parts = [
        f"{models} models in {len(rows)} configurations, with {packages}, on one thread.",
        f"In {len(rows) - len(failed)} of them results are bit-equal, and no finding above a hint "
        "is a false alarm." + "".join(f"\n* {each}" for each in (*failed, *varying)),
        _summary(rows),
        "Times shown are those of forward, backward and optimizer that `trace.phase_times()` "
        "returns, over the plain step.",
        "The ratios per model: `record()`, `ops=False` and `keep_steps=3`.",
        _by_model(rows),
        _plans(rows),
        _budgets(rows),
        _live_bytes(rows, "live", "a count by weak references"),
        _live_bytes(rows, "on_device", "the allocator of the device that the tests use"),
        _not_on_device(rows),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _summary(rows: list[dict]) -> str:
    heads = [*(f"{mode}: median | worst" for mode in MODES), "times shown: median | least | most"]
    lines = ["| | models | " + " | ".join(heads) + " |", "|---" * (5 + 2 * len(MODES)) + "|"]
    groups = {
        label: [row for row in rows if row["variant"] == key] for key, label in TRAINED.items()
    }
    for label, group in ({"all": rows} | groups).items():
        timed = [row["ratios"] for row in group if "ratios" in row]
        if timed:
            cells = [_median_and_worst([each[mode] for each in timed]) for mode in MODES]
            shown = [row["shown"] for row in group if "shown" in row] or [math.nan]
            cells.append(f"{statistics.median(shown):.2f} | {min(shown):.2f} | {max(shown):.2f}")
            lines.append(f"| {label} | {len(timed)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _median_and_worst(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} | {max(ratios):.2f}"


def _by_model(rows: list[dict]) -> str:
    found = {(row["model"], row["variant"]): row for row in rows}
    lines = ["| model | plain step | " + " | ".join(TRAINED.values()) + " |"]
    lines.append("|---" * (2 + len(TRAINED)) + "|")
    for model in dict.fromkeys(row["model"] for row in rows):
        took = found.get((model, "plain"), {}).get("plain_ms")
        cells = [_cell(found.get((model, variant))) for variant in TRAINED]
        shown = "" if took is None else f"{took:,.0f} ms"
        lines.append(f"| {model} | {shown} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: dict | None) -> str:
    if row is None:
        return ""
    ratios = row.get("ratios")
    if ratios is None:
        return "failed" if wrong(row) else "not timed"
    return " · ".join(f"{ratios[mode]:.2f}" for mode in MODES)


NEAR = 0.03
"""How far a planned peak may be from that of the allocator, as a share."""


def _plans(rows: list[dict]) -> str:
    """Return the distances of plans from their trainings, and the trainings without one."""
    plans = [(row["model"], plan) for row in rows for plan in row.get("plans", ())]
    compared = [(model, plan) for model, plan in plans if "peak" in plan]
    if not compared:
        return "No plan was compared."
    saved = [_named(*each) for each in compared if len(set(each[1]["saved"])) > 1]
    far = [
        f"{_named(model, plan)}: {_off(plan):+.1%}"
        for model, plan in compared if abs(_off(plan)) > NEAR
    ]  # fmt: skip
    values = [_named(*each) for each in plans if "needs_values" in each[1]]
    failed = [
        f"{_named(model, plan)}: {plan['failed'].splitlines()[0][:120]}"
        for model, plan in plans if "failed" in plan
    ]  # fmt: skip
    off = statistics.median(abs(_off(plan)) for _, plan in compared)
    models = len({model for model, _ in compared})
    text = [
        f"Plans of {len(compared)} trainings of {models} models (`autogradviz.plan`, two steps "
        "with the construction of the model): the peak of all memory differs from that of "
        f"PyTorch's CPU allocator by {off:.2%} in the median, and by more than {NEAR:.0%} in "
        f"{len(far)}; saved bytes are equal in {len(compared) - len(saved)}."
    ]
    for what, found in (
        ("Peak", far), ("Other saved bytes", saved), ("Needs values", values), ("Failed", failed),
    ):  # fmt: skip
        text += [f"* {what}: {'; '.join(found)}"] if found else []
    return "\n".join(text)


def _budgets(rows: list[dict]) -> str:
    """Return the number of budgets that were met with what ``fit`` says, and the exceptions."""
    pairs = [(row["model"], each) for row in rows for each in row.get("budgets", ())]
    if not pairs:
        return "No budget was measured."
    over = [
        f"{model}: {each['reached'] / each['budget'] - 1:+.1%}"
        for model, each in pairs if each["reached"] > each["budget"]
    ]  # fmt: skip
    planned = [each for _, each in pairs if "tensors" in each]
    as_tensors = sum(each["tensors"] <= each["budget"] for each in planned)
    equal = sum(each["gradients"] for _, each in pairs)
    text = [
        f"Budgets: {len(pairs)} pairs of a model and a budget that checkpointing like modules can "
        f"meet, with the statements of `trace.fit(budget)` applied and run. The peak of PyTorch's "
        f"CPU allocator is within the budget in {len(pairs) - len(over)}; that of all tensors, "
        f"planned for {len(planned)} of them, in {as_tensors}. All gradients are bit for bit those "
        f"of the step as it was in {equal}."
    ]
    text += [f"* Over: {'; '.join(over)}"] if over else []
    return "\n".join(text)


def _live_bytes(rows: list[dict], key: str, what: str) -> str:
    """Return the number of trainings whose live bytes are those of an independent count.

    Args:
        rows: the results.
        key: of the numbers, "live" or "on_device".
        what: the count.
    """
    counted = [row for row in rows if key in row]
    if not counted:
        return f"Live bytes were not compared with {what}."
    equal = sum(row[key][1] == 0 for row in counted)
    ops, models = sum(row[key][0] for row in counted), len({row["model"] for row in counted})
    text = [
        f"Live bytes (`record(memory=True)`) after each of {ops:,} operators, in {len(counted)} "
        f"trainings of {models} models, were compared with {what}: in {equal} trainings all are "
        "equal."
    ]
    different = [
        f"{row['model']} ({row['variant']}): {row[key][1]:,} of {row[key][0]:,}"
        for row in counted if row[key][1]
    ]  # fmt: skip
    text += [f"* Different: {'; '.join(different)}"] if different else []
    return "\n".join(text)


def _not_on_device(rows: list[dict]) -> str:
    found = [f"* {row['model']} ({row['variant']}): {row['not_on_device']}"
             for row in rows if "not_on_device" in row]  # fmt: skip
    return "\n".join(["That device cannot run these models:", *found]) if found else ""


def _off(plan: dict) -> float:
    planned, needed = plan["peak"]
    return planned / needed - 1


def _named(model: str, plan: dict) -> str:
    return f"{model} ({plan['variant']}, {plan['optimizer']})"
