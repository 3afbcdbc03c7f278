"""The order of the results that the search of the documentation site has."""

from __future__ import annotations

from pathlib import Path

SCORES = Path(__file__).parents[2] / "docs" / "search_scores.js"
ORDER = """(pages) => pages.map(([page, title, score]) => [
    Scorer.score([page, title, "", null, score, page]), title,
]).sort((a, b) => b[0] - a[0]).map(([, title]) => title)"""
PAGES = [
    ["events", "Events", 5],
    ["findings/a", "A hook or a custom Function changes gradients", 5],
    ["guides/b", "Find why a gradient is None, zero or NaN", 5],
    ["viewer", "The viewer", 5],
]


def test_pages_with_the_words_in_their_titles_come_first(open_page, tmp_path):
    place = tmp_path / "search.html"
    place.write_text(f"<script>{SCORES.read_text(encoding='utf-8')}</script>", encoding="utf-8")
    page = open_page()
    page.goto(f"{place.as_uri()}?q=gradient+is+None")
    assert page.evaluate(ORDER, PAGES) == [
        "Find why a gradient is None, zero or NaN",
        "A hook or a custom Function changes gradients",
        "The viewer",
        "Events",
    ]
