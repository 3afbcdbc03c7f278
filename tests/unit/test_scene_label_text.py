"""Names and numbers as they are told."""

from __future__ import annotations

from autogradviz.render.terminal_text import format_duration
from autogradviz.scene.label_text import merge_numbered_names


def test_names_that_differ_in_numbers_only_share_one():
    assert merge_numbered_names(["h.0.mlp", "h.11.mlp", "h.3.attn", "head", "h.0.mlp"]) == {
        "h.0.mlp": "h.*.mlp",
        "h.11.mlp": "h.*.mlp",
        "h.3.attn": "h.3.attn",
        "head": "head",
    }
    assert merge_numbered_names(["10", "9", "8"]) == dict.fromkeys(["10", "9", "8"], "8–10")
    assert merge_numbered_names([]) == {}


def test_a_number_that_all_names_have_stays():
    names = ["GPT2.h.0", "GPT2.h.1"]
    assert merge_numbered_names(names) == dict.fromkeys(names, "GPT2.h.*")


def test_long_times_are_told_in_seconds():
    assert [format_duration(ns) for ns in (12_340_000, 9_999_900_000, 10_000_000_000)] == [
        "12.3 ms",
        "9,999.9 ms",
        "10.0 s",
    ]
