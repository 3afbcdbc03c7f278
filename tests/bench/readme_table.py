"""The README's table of costs: what it quotes of ``assets/bench.md``, one column a step."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TITLES = {
    "12-layer GPT, d=768": "GPT, d=768",
    "12-layer GPT, d=768, checkpointed": "GPT, d=768, checkpointed",
    "12-layer GPT, d=64": "GPT, d=64",
    "12-layer GPT, d=64, checkpointed": "GPT, d=64, checkpointed",
    "ResNet-18, two images of 64×64": "ResNet-18",
    "RNN of 1,000 steps": "RNN, 1,000 steps",
    "a graph of 20,000 nodes": "20,000 nodes",
}
WAYS = (
    "plain",
    "floor: empty mode, empty hooks",
    "record()",
    "record(ops=False)",
    "record(keep_steps=3)",
    "record(fingerprints=True)",
    "DebugMode",
    "TorchLens, the forward only",
    "torchview, the forward only",
    "torchviz",
    "checkpoint(debug=True)",
)
NOTHING = "–"


def quoted(measured: str) -> str:
    """Return the README's table of a whole ``bench.md``."""
    steps = {part.splitlines()[0]: _cells(part) for part in measured.split("### ") if part}
    shown = [title for title in TITLES if title in steps]
    lines = [
        "| | " + " | ".join(TITLES[title] for title in shown) + " |",
        "|---" * (len(shown) + 1) + "|",
        *(
            f"| {way} | " + " | ".join(steps[title].get(way, NOTHING) for title in shown) + " |"
            for way in WAYS
        ),
    ]
    return "\n".join(lines)


def _cells(table: str) -> dict[str, str]:
    """Return the CPU time of each way in one step's table, without its noise."""
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {
        row[0].removeprefix("| "): NOTHING
        if row[1] == "nothing is checkpointed"
        else re.sub(r" ±.*", "", row[1])
        for row in rows
    }


def main() -> None:
    """Put the table into the README, in place of the one that is there."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    measured = (ROOT / "assets" / "bench.md").read_text(encoding="utf-8")
    before, marker, rest = text.partition("| | GPT, d=768 |")
    _, blank, after = rest.partition("\n\n")
    if not marker or not blank:
        message = "README.md has no table of costs"
        raise SystemExit(message)
    page.write_text(before + quoted(measured) + blank + after, encoding="utf-8")


if __name__ == "__main__":
    main()
