"""Appending and reading events."""

from __future__ import annotations

import http
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pyarrow as pa
import pytest
from make_log import backward, backward_ended, make_log, op, saved, source, unpacked

from autogradviz.event_log import Log, batches, compressed_rows, load, save
from autogradviz.event_log.arrow_file_layout import open_stream
from autogradviz.event_log.rows_to_arrow import _from_array, schema
from autogradviz.events import (
    EVENT_TYPES,
    BackwardEnded,
    BackwardStarted,
    OpCalled,
    RecordingEnded,
    SourceLineRead,
    TensorReleased,
    TensorSaved,
    TensorSeen,
    TensorUnpacked,
    field_names,
)


def test_rows_are_read_as_events():
    log = Log()
    append = log.appender(TensorReleased)
    append((3, 30, 0, None, 7))
    assert log.of(TensorReleased) == (
        TensorReleased(seq=3, time_ns=30, thread=0, stack_id=None, saved_id=7),
    )


def test_events_appended_after_a_read_are_read():
    log = Log()
    append = log.appender(TensorReleased)
    append((0, 0, 0, None, 1))
    assert [event.saved_id for event in log.of(TensorReleased)] == [1]
    append((1, 0, 0, None, 2))
    assert [event.saved_id for event in log.of(TensorReleased)] == [1, 2]


def test_kinds_are_merged_by_event_number():
    log = make_log(backward(), saved(1), unpacked(1), backward_ended())
    kinds = [type(event) for event in log if event.seq > 0]
    assert kinds == [BackwardStarted, TensorSaved, TensorUnpacked, BackwardEnded]
    merged = log.merged(TensorUnpacked, BackwardStarted)
    assert [type(event) for event in merged] == [BackwardStarted, TensorUnpacked]


def test_log_does_not_depend_on_the_order_of_its_events():
    log = make_log(backward(), saved(1), saved(2), unpacked(1), backward_ended())
    assert Log.from_events(reversed(list(log))) == log


def test_logs_with_different_rows_or_problems_are_not_equal():
    log, other = make_log(saved(1)), make_log(saved(2))
    assert log != other
    torn = make_log(saved(1))
    torn.problem = "torn"
    assert log != torn
    assert log != "log"


def test_log_has_a_length_and_a_repr():
    log = Log()
    log.extend_rows(RecordingEnded, [(0, 0, 0, None, 0, 0)])
    assert (len(log), repr(log)) == (1, "<Log of 1 events>")


# --- compression -------------------------------------------------------------------------------


decompress = compressed_rows._decompress


def many():
    return make_log(
        source("m.py", 1, "x = x.exp()"), [op("exp", (i,), at="m.py:1") for i in range(50)]
    )


def compressed_at(seq):
    log = many()
    log.compress(seq)
    return log


@pytest.mark.parametrize("seq", [0, 1, 40, 10_000])
def test_compressed_rows_equal_uncompressed_rows(seq):
    whole, log = many(), compressed_at(seq)
    assert len(log.recent(OpCalled)) == sum(row[0] >= seq for row in whole.rows(OpCalled))
    assert len(log) == len(whole)
    assert log == whole
    assert list(log) == list(whole)


def test_kinds_decoded_together_open_each_batch_once(tmp_path, monkeypatch):
    opened = []

    def watched(head, message, columns):
        opened.append(columns)
        return open_stream(head, message, columns)

    save(many(), tmp_path / "a.agv")
    log, whole = load(tmp_path / "a.agv"), many()
    # The package exports a function with the name of the module.
    monkeypatch.setattr(sys.modules[open_stream.__module__], "open_stream", watched)
    log.decode(OpCalled, TensorSeen)
    assert opened == [{*field_names(OpCalled), *field_names(TensorSeen)}]
    log.decode(OpCalled)
    assert log.rows(TensorSeen) == whole.rows(TensorSeen)
    assert len(opened) == 1
    log.decode()
    assert len(opened) == 2
    assert list(log) == list(whole)


def test_columns_without_values_are_left_out_of_a_batch(tmp_path):
    save(many(), tmp_path / "a.agv")
    [batch] = load(tmp_path / "a.agv").segments
    [columns] = open_stream(batch._head, batch._message)
    empty = [name for name in columns.schema.names if columns[name].null_count == len(columns)]
    assert empty == []
    [whole] = batch.batches()
    assert set(columns.schema.names) < set(whole.schema.names) == set(schema().names)


def test_fields_of_a_kind_are_read_without_creating_events():
    log, ops = compressed_at(40), many().of(OpCalled)
    assert log.column(OpCalled, "op") == [op.op for op in ops]
    assert list(log.fields(OpCalled, "op", "seq")) == [(op.op, op.seq) for op in ops]
    assert log.column(RecordingEnded, "event_count") == []
    assert list(log.fields(RecordingEnded, "seq", "event_count")) == []


def test_fields_of_several_kinds_are_merged_in_order():
    log = compressed_at(40)
    merged = log.merged_fields((TensorSeen, OpCalled), "seq", "op")
    assert list(merged) == [
        (type(event), event.seq, getattr(event, "op", None))
        for event in many().merged(OpCalled, TensorSeen)
    ]


def test_reading_a_kind_decompresses_only_its_rows(monkeypatch):
    loaded, reader = [], threading.get_ident()

    def watched(content, nbytes):
        if threading.get_ident() == reader:  # a widget of another test may still read its log
            loaded.append(content)
        return decompress(content, nbytes)

    monkeypatch.setattr(compressed_rows, "_decompress", watched)
    log, whole = compressed_at(10_000), many()
    assert log.rows(OpCalled) == whole.rows(OpCalled)
    assert len(loaded) == 1
    log.decode(OpCalled, TensorSeen)
    assert len(loaded) == 2
    assert log == whole


def test_log_accepts_events_after_compression():
    log, whole = many(), many()
    for seq in (30, 30, 90):
        log.compress(seq)
    assert len(list(log.segments)) == 2  # no new row was older than 30
    known = log.of(OpCalled)
    row = (999, *whole.rows(OpCalled)[-1][1:])
    log.appender(OpCalled)(row)
    whole.appender(OpCalled)(row)
    assert log == whole
    assert log.of(OpCalled)[:-1] == known
    assert log.of(OpCalled)[-1].seq == 999


def test_copy_of_a_compressed_log_is_independent():
    log = compressed_at(40)
    copy = log.copy()
    log.compress(10_000)
    log.extend_rows(RecordingEnded, [(999, 0, 0, None, 999, 0)])
    assert copy == many()
    assert len(copy.recent(OpCalled)) > 0


def test_rows_appended_out_of_order_are_read_in_order():
    rows, log = many().rows(OpCalled), Log()
    log.extend_rows(OpCalled, rows[:3] + rows[4:])
    log.compress(60)
    log.extend_rows(OpCalled, rows[3:4])
    assert log.rows(OpCalled) == rows
    log.sort()
    assert log.rows(OpCalled) == rows


def test_events_appended_during_compression_are_neither_lost_nor_duplicated():
    log = Log()
    append = log.appender(TensorReleased)
    together = threading.Barrier(2)

    def work():
        for begin in range(0, 40_000, 4_000):
            together.wait()
            for number in range(begin, begin + 4_000):
                append((number, 0, 0, None, number))

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(10):
        together.wait()
        log.compress(len(log) - 100)
        copy = log.copy()
        assert len({row[0] for row in copy.rows(TensorReleased)}) == len(copy)
    worker.join()
    assert len(log.segments) > 30_000
    assert [row[0] for row in log.rows(TensorReleased)] == list(range(40_000))


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("text", Text("x = 1"), "x = 1"),
        ("text", np.str_("x = 1"), "x = 1"),
        ("text", "x = \udc80", "x = \udc80"),
        ("lineno", http.HTTPStatus.OK, 200),
    ],
)
def test_subclasses_of_builtin_types_are_compressed_as_in_a_file(field, value, expected, tmp_path):
    names = field_names(SourceLineRead)
    line = {"seq": 300, "time_ns": 0, "thread": 0, "filename": "m.py", "lineno": 1, "text": ""}
    log = many()
    log.extend_rows(SourceLineRead, [tuple(({**line, field: value}).get(name) for name in names)])
    log.compress(10_000)
    assert log.recent_count == 0
    found = log.rows(SourceLineRead)[-1][names.index(field)]
    assert (found, type(found)) == (expected, type(expected))
    save(log, tmp_path / "a.agv")
    assert len(load(tmp_path / "a.agv")) == len(log)


def test_rows_that_cannot_be_compressed_are_kept():
    log = many()
    log.extend_rows(SourceLineRead, [(300, 0, 0, None, "m.py", 1, {"not": "text"})])
    expected = [list(log.rows(kind)) for kind in EVENT_TYPES]
    # PyArrow checks the type if pandas is imported, otherwise Python does.
    with pytest.raises((pa.ArrowException, TypeError)):
        log.compress(10_000)
    assert [log.rows(kind) for kind in EVENT_TYPES] == expected


def test_compressed_and_uncompressed_rows_are_saved_in_one_file(tmp_path):
    log, whole = many(), many()
    for seq in (30, 90):
        log.compress(seq)
    save(log, tmp_path / "a.agv")
    assert list(load(tmp_path / "a.agv")) == list(whole)
    table = pa.Table.from_batches(batches(log))
    assert table.equals(pa.Table.from_batches(batches(load(tmp_path / "a.agv"))))


def test_loaded_file_is_saved_byte_for_byte(tmp_path):
    save(many(), tmp_path / "a.agv")
    save(load(tmp_path / "a.agv"), tmp_path / "b.agv")
    assert (tmp_path / "a.agv").read_bytes() == (tmp_path / "b.agv").read_bytes()


def test_batches_without_a_column_are_saved_with_it(tmp_path):
    save(many(), tmp_path / "a.agv")
    with pa.OSFile(str(tmp_path / "a.agv")) as raw:
        table = pa.ipc.open_file(raw).read_all()
    without = table.drop_columns(["step"])
    with pa.ipc.new_stream(tmp_path / "without.agv", without.schema) as stream:
        stream.write_table(without)
    read = load(tmp_path / "without.agv")
    assert list(read) == list(many())
    save(read, tmp_path / "b.agv")
    with pa.OSFile(str(tmp_path / "b.agv")) as raw:
        assert pa.ipc.open_file(raw).schema.equals(table.schema, check_metadata=True)
    assert list(load(tmp_path / "b.agv")) == list(many())


def test_lists_and_text_with_nulls_are_read():
    # Arrow allows a null list to have values.
    flat, offsets = pa.array([1, 2, 3, 4]), pa.array([0, 1, 3, 3, 4], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, flat, mask=pa.array([False, True, False, False]))
    assert _from_array(lists) == [(1,), None, (), (4,)]
    assert _from_array(lists.slice(1)) == [None, (), (4,)]
    assert _from_array(pa.array([[1], None, [], [4]]).slice(1)) == [None, (), (4,)]
    assert _from_array(pa.array(["a", None, "a", "b"]).slice(1)) == [None, "a", "b"]


def test_reading_a_file_does_not_import_pandas(tmp_path):
    save(many(), tmp_path / "a.agv")
    code = f"""
        import sys, autogradviz
        autogradviz.load({str(tmp_path / "a.agv")!r}).log.decode()
        print("pandas" in sys.modules)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False"]
