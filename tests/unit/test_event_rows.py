"""The rows of one event type: append, find, drop and sort."""

from __future__ import annotations

import gc
import threading

import pytest

from autogradviz.event_log import Log
from autogradviz.event_log.uncompressed_rows import Rows
from autogradviz.events import TensorReleased


def row(seq, saved_id=0):
    return (seq, 10 * seq, 0, None, saved_id)


def some(*seqs):
    rows = Rows(TensorReleased)
    for seq in seqs:
        rows.append(row(seq))
    return rows


def test_rows_are_read_as_tuples_and_as_columns():
    rows = some(3, 5, 8)
    assert len(rows) == 3
    assert rows.rows() == [row(3), row(5), row(8)]
    assert rows.rows(2) == [row(3), row(5)]
    assert rows.column(1) == [30, 50, 80]
    assert rows.columns(1) == [[5, 8], [50, 80], [0, 0], [None, None], [0, 0]]
    assert rows.columns(0, 1) == [[3], [30], [0], [None], [0]]
    assert rows.columns(3) == [[], [], [], [], []]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (2, [5, 8]), (3, [3, 5, 8])])
def test_newest_returns_at_most_the_existing_rows(count, expected):
    rows = some(1, 3, 5, 8)
    rows.replace(1)
    assert [seq for seq, *_ in rows.newest(count)] == expected
    assert rows.newest(9) == rows.rows()


@pytest.mark.parametrize(
    ("seq", "start", "stop", "expected"),
    [(5, 0, None, 1), (6, 0, None, 2), (9, 0, None, 3), (9, 0, 1, 1), (0, 2, None, 2)],
)
def test_event_is_found_by_its_number(seq, start, stop, expected):
    rows = some(0, 3, 5, 8)
    rows.replace(1)
    assert rows.find(seq, start, stop) == expected


@pytest.mark.parametrize("many", [8, 1_000])
@pytest.mark.parametrize("kept", [(), (1,), (0, 2)])
def test_dropped_rows_are_removed_whether_skipped_or_deleted(many, kept):
    rows, expected = some(*range(many)), list(range(many))
    while len(rows) > 3:
        rows.replace(3, [row(expected[place]) for place in kept])
        expected[:3] = [expected[place] for place in kept]
        assert rows.column(0) == expected
        rows.append(row(many))
        expected.append(many)
        if len(kept) > 1:
            break
        rows.replace(1)
        del expected[:1]
    assert rows.rows() == list(map(row, expected))
    assert rows.values() == [value for seq in expected for value in row(seq)]


def test_skipped_rows_are_at_most_a_quarter_of_the_list():
    rows = some(*range(400))
    for _ in range(300):
        rows.replace(1)
        assert len(rows._values) <= 5 * len(rows) / 0.75


def test_rows_are_sorted():
    rows = some(0, 3, 8, 5, 9)
    rows.replace(1)
    rows.sort()
    assert rows.rows() == [row(3), row(5), row(8), row(9)]


def test_rows_are_not_tracked_by_the_garbage_collector():
    log = Log()
    append = log.appender(TensorReleased)
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        for seq in range(1_000):
            append((seq, seq, 0, None, seq))
        assert gc.get_count()[0] - before < 10
    finally:
        gc.enable()
    assert len(log.recent(TensorReleased)) == 1_000


def test_other_threads_read_complete_rows():
    rows, done = Rows(TensorReleased), threading.Event()

    def work():
        for seq in range(100_000):
            rows.append(row(seq, seq))
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    reads = 0
    while not done.is_set() or not reads:
        reads += 1
        newest = rows.newest(5)
        assert newest == [row(seq, seq) for seq, *_ in newest]
        if len(rows) > 1_000:
            seqs = [seq for seq, *_ in rows.rows(500)]
            assert seqs == list(range(seqs[0], seqs[0] + 500))
            rows.replace(500)
    worker.join()
    assert rows.column(0)[-1] == 99_999
