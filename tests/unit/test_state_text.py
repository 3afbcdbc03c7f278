"""Recorded states in words."""

from __future__ import annotations

import pytest

from autogradviz.analysis.formatting import is_length, state_texts


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("len 1", "len 0", ("1 item", "0 items")),
        ("len 1", "len 2, 0 first", ("1 key", "2 keys")),
        ("len 2, 0 first", "len 2, 'a, b' first", ("2 keys, first 0", "2 keys, first 'a, b'")),
        ("len 3, content 0a", "len 3, content 1b", ("3 items, content 0a", "3 items, content 1b")),
        ("len 3, content 0a", "len 4, content 1b", ("3 items", "4 items")),
        ("None", "len 2, 0 first", ("None", "2 keys, first 0")),
        ("None", "'len 2'", ("None", "'len 2'")),
    ],
)
def test_lengths_of_a_container_are_in_words(before, after, words):
    assert state_texts(before, after) == words
    assert [is_length(state) for state in (before, after)] == [
        state.startswith("len") for state in (before, after)
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("float32 4 #214 v0", "float32 4 #214 v1", ("float32 4", "float32 4, written once")),
        ("int64 scalar #2 v3", "int64 scalar #2 v1003",
         ("int64 scalar", "int64 scalar, written 1,000 times")),
        ("float32 4 cuda:0 #2 v0", "float32 4 cuda:0 #7 v0",
         ("float32 4 cuda:0", "float32 4 cuda:0, in other memory")),
        ("float32 4 #2 v0, requires grad", "float32 4 #2 v0",
         ("float32 4, requires grad", "float32 4")),
        ("absent", "float32 2×4 #5 v0", ("absent", "float32 2×4")),
        ("float32 2×4 #5 v0", "float32 3×4 #6 v0", ("float32 2×4", "float32 3×4")),
    ],
)  # fmt: skip
def test_a_tensor_is_described_by_its_writes_not_by_its_address(before, after, words):
    assert state_texts(before, after) == words
