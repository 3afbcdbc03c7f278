"""Formatting of names and numbers."""

from __future__ import annotations

from autogradviz.analysis.formatting import format_duration
from autogradviz.scene.label_text_and_width import last_part, merge_numbered_names, range_label


def test_names_that_differ_only_in_a_number_are_merged():
    assert merge_numbered_names(["h.0.mlp", "h.11.mlp", "h.3.attn", "head", "h.0.mlp"]) == {
        "h.0.mlp": "h.*.mlp",
        "h.11.mlp": "h.*.mlp",
        "h.3.attn": "h.3.attn",
        "head": "head",
    }
    assert merge_numbered_names(["10", "9", "8"]) == dict.fromkeys(["10", "9", "8"], "8–10")
    assert merge_numbered_names([]) == {}


def test_last_part_of_a_name_has_what_its_numbers_count():
    names = ["net.h.0", "net.down.0.1", "net.0.mlp", "0", "0.1", ""]
    assert [last_part(name) for name in names] == ["h.0", "down.0.1", "mlp", "0", "0.1", ""]
    assert range_label(last_part("down.0.0"), last_part("down.0.1")) == "down.0.0–1"


def test_common_number_of_all_names_is_kept():
    names = ["GPT2.h.0", "GPT2.h.1"]
    assert merge_numbered_names(names) == dict.fromkeys(names, "GPT2.h.*")


def test_long_durations_are_in_seconds():
    assert [format_duration(ns) for ns in (12_340_000, 9_999_900_000, 10_000_000_000)] == [
        "12.3 ms",
        "9,999.9 ms",
        "10.0 s",
    ]


def test_names_without_a_common_number_have_no_range():
    assert range_label("h.0", "h.11") == "h.0–11"
    assert range_label("wpe", "head") == "wpe … head"
