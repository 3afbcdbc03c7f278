"""Values of objects by identity, without keeping the objects alive."""

import signal
import sys
from _thread import interrupt_main
from functools import partial

import pytest

from autogradviz.support.identity_table import IdentityTable


class Equal:
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def test_entries_belong_to_one_object_and_go_with_it():
    table, first, second = IdentityTable(), Equal(), Equal()
    table[first] = 1
    assert [table.get(first), table.get(second), len(table)] == [1, None, 1]
    table[first] = 2
    assert [table.get(first), len(table)] == [2, 1]
    del first
    assert [table.get(second), len(table)] == [None, 0]


def test_the_exception_of_a_handler_is_not_lost_when_an_object_dies(monkeypatch):
    def ring(*_):
        message = "rang"
        raise ValueError(message)

    dropped, holder, table = [], [Equal()], IdentityTable()
    table[holder[0]] = 1
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    before = signal.signal(signal.SIGINT, ring)
    try:
        with pytest.raises(ValueError, match="rang"):
            # Only C runs: the signal is pending when the object dies.
            list(map(partial.__call__, [partial(interrupt_main), partial(holder.clear)]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert dropped == []
    assert len(table) == 0
