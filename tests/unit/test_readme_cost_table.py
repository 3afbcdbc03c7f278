"""The cost table of the README is an excerpt of the benchmark table."""

from __future__ import annotations

from pathlib import Path

import readme_table

ROOT = Path(__file__).parent.parent.parent


def test_readme_quotes_the_benchmark_results():
    measured = (ROOT / "assets" / "bench.md").read_text(encoding="utf-8")
    table = readme_table.quoted(measured)
    assert "| record() | " in table
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")


def test_noise_is_omitted_and_unmeasured_cells_are_dashes():
    measured = (
        "### 12-layer GPT, d=64\n\n| | CPU time | per event |\n|---|---|---|\n"
        "| plain | 8.0 ms ± 0.1 |  |\n| record() | 5.0× ± 0.2 | 8 µs × 1 |\n"
        "| torchviz | nothing is checkpointed | |\n"
    )
    lines = readme_table.quoted(measured).splitlines()
    assert lines[0] == "| | GPT, d=64 |"
    assert "| record() | 5.0× |" in lines
    assert "| TorchLens, the forward only | – |" in lines
    assert "| torchviz | – |" in lines
