"""The cost table of the README: an excerpt of ``assets/bench.md`` with one column per step."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TITLES = {
    "12-layer GPT, d=768": "GPT, d=768",
    "12-layer GPT, d=64": "GPT, d=64",
    "ResNet-18, two images of 64×64": "ResNet-18",
    "RNN of 1,000 steps": "RNN, 1,000 steps",
}
RECORDERS = (
    "record()",
    "record(keep_steps=3), each of 20 steps",
    "TorchLens, the forward only",
    "torchviz",
)
NOT_MEASURED = "–"


def quoted(measured: str) -> str:
    """Return the table of the README from the text of ``bench.md``."""
    steps = {part.splitlines()[0]: _cells(part) for part in measured.split("### ") if part}
    shown = [title for title in TITLES if title in steps]
    lines = [
        "| | " + " | ".join(TITLES[title] for title in shown) + " |",
        "|---" * (len(shown) + 1) + "|",
        *(
            f"| {recorder} | "
            + " | ".join(steps[title].get(recorder, NOT_MEASURED) for title in shown)
            + " |"
            for recorder in RECORDERS
        ),
    ]
    return "\n".join(lines)


def _cells(table: str) -> dict[str, str]:
    """Return the CPU time per recorder from the table of one step, without its noise."""
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {
        row[0].removeprefix("| "): NOT_MEASURED
        if row[1] == "nothing is checkpointed"
        else re.sub(r" ±.*", "", row[1])
        for row in rows
    }


def main() -> None:
    """Replace the table in the README."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    measured = (ROOT / "assets" / "bench.md").read_text(encoding="utf-8")
    before, marker, rest = text.partition("| | GPT, d=768 |")
    _, blank, after = rest.partition("\n\n")
    if not marker or not blank:
        message = "README.md has no cost table"
        raise SystemExit(message)
    page.write_text(before + quoted(measured) + blank + after, encoding="utf-8")


if __name__ == "__main__":
    main()
