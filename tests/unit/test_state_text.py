"""Recorded states in words."""

from __future__ import annotations

import pytest

from autogradviz.analysis.formatting import is_length, state_text


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ("len 0", "0 items"),
        ("len 1", "1 item"),
        ("len 2, 0 first", "2 keys, first 0"),
        ("len 2, 'a, b' first", "2 keys, first 'a, b'"),
        ("len 3, content 0a1b2c", "3 items, content 0a1b2c"),
        ("None", "None"),
        ("'len 2'", "'len 2'"),
    ],
)
def test_length_of_a_container_is_in_words(recorded, words):
    assert state_text(recorded) == words
    assert is_length(recorded) == recorded.startswith("len")
