"""Writes the table of docs/versions.md from the results in tests/versions/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"
RESULTS = ROOT / "tests" / "versions" / "results"
BEGIN = "<!-- written by docs/generate_versions.py -->\n"
END = "<!-- end -->\n"
HEAD = (
    "| Python | PyTorch | native engine | tests | passed | failed | skipped | date |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def results() -> list[dict[str, Any]]:
    """Return all results, in the order of the versions."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    return sorted(found, key=lambda each: (_numbers(each), each["tests"]))


def _numbers(result: dict[str, Any]) -> list[int]:
    plain = f"{result['torch'].partition('+')[0]}.{result['python']}"
    return [int(part) for part in plain.split(".") if part.isdecimal()]


def row(result: dict[str, Any]) -> str:
    """Return the line of the table for a result."""
    native = "yes" if result["native_engine"] else "no"
    tests = ", ".join(f"`{part}`" for part in result["tests"].split())
    counts = " | ".join(f"{result[key]:,}" for key in ("passed", "failed", "skipped"))
    return (
        f"| {result['python']} | {result['torch']} | {native} | {tests} | {counts} "
        f"| {result['date']} |\n"
    )


def page(text: str) -> str:
    """Return the page with the table of the results."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"{PAGE.name} has no place for the table"
        raise ValueError(message)
    table = HEAD + "".join(map(row, results()))
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
