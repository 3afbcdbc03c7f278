"""The figures in the documents were measured with the present code."""

from __future__ import annotations

from pathlib import Path

import conditions
import pytest

ASSETS = Path(__file__).parents[2] / "assets"
TABLES = {
    "bench.md": conditions.ENGINES,
    "bench_log.md": conditions.ENGINES,
    "checkpoint_predictions.md": conditions.ENGINES,
    "flight.md": conditions.ENGINES,
    "zoo.md": conditions.ENGINES,
    "bench_viewer.md": conditions.VIEWER,
}


@pytest.mark.slow(reason="fails after each change of the engines, until `make bench zoo` has run")
@pytest.mark.parametrize("name", TABLES)
def test_table_is_not_older_than_the_sources(name):
    found = conditions.digests((ASSETS / name).read_text(encoding="utf-8"))
    assert found
    assert set(found) == {conditions.digest(TABLES[name])}


@pytest.mark.slow(reason="fails for older tables, until `make bench zoo` has run")
@pytest.mark.parametrize("name", TABLES)
def test_table_says_with_what_it_was_measured(name):
    text = (ASSETS / name).read_text(encoding="utf-8")
    assert len(conditions.digests(text)) == text.count("Measured on ") > 0


def test_digest_depends_on_names_and_contents(tmp_path, monkeypatch):
    monkeypatch.setattr(conditions, "PACKAGE", tmp_path)
    found = {conditions.digest(("*.h",))}
    for name, text in (("a.h", "1"), ("a.h", "2"), ("b.h", ""), ("c.cpp", "no source of this")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        found.add(conditions.digest(("*.h",)))
    assert len(found) == 4
    (tmp_path / "a.h").write_text("int a;  // one\n", encoding="utf-8")
    found = conditions.digest(("*.h",))
    (tmp_path / "a.h").write_text("// more\n// of it\n\nint a;\n", encoding="utf-8")
    assert conditions.digest(("*.h",)) == found
    assert conditions.digests(f"; sources `{conditions.digest(('*.h',))}`.")
