"""The table of compiled regions in ``autogradviz show``."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from autogradviz.cli.show import compiled_table
from autogradviz.scene.compiled.columns_by_line_or_block import saved_texts


def test_a_region_has_the_sizes_that_its_picture_has():
    region = SimpleNamespace(
        name="forward [0/0]",
        saved_nbytes=12_600_000,
        computed_nbytes=11_400_000,
        saved=[None] * 3,
        recomputed=(),
        differentiable=True,
        source="objects",
        planned=False,
        missing=(),
    )
    console = Console(width=120, record=True)
    console.print(compiled_table(SimpleNamespace(compiled_regions=[region])))
    text = console.export_text()
    assert saved_texts(region) == ["11 MB", "+ 1.2 MB inputs"]
    assert "11 MB + 1.2 MB inputs  in 3 slots" in text
