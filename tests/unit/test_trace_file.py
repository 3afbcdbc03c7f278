"""Trace files: complete, truncated, damaged and foreign files."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from event_strategies import any_events, events_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_log import began, bumped, ended, make_log, op, saved, source, unpacked

from autogradviz.errors import NotATraceError
from autogradviz.event_log import (
    FORMAT_VERSION,
    Log,
    Stream,
    is_arrow_file,
    load,
    read_summary,
    save,
)
from autogradviz.event_log import encode_arrow_stream as encode_stream
from autogradviz.event_log.arrow_file_layout import index_size
from autogradviz.events import EVENT_TYPES, OpCalled, RecordingEnded, SourceLineRead
from autogradviz.live.follow_growing_file import FollowedFile

INTS = st.integers(-(2**63), 2**63 - 1)
PER_TEST_FOLDER = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def complete(events: list[Any]) -> Log:
    """Return a log with a correct end event."""
    log = Log.from_events(events)
    log.extend_rows(RecordingEnded, [(2**63 - 1, 0, 0, None, len(events), 0)])
    return log


def small_log() -> Log:
    facts = [
        began(model_name="Net"),
        source("m.py", 1, "x = x.exp()"),
        [[op("exp", (i,), at="m.py:1"), saved(i, i), bumped("add_", i)] for i in range(1, 40)],
    ]
    log = make_log(facts)
    log.extend_rows(RecordingEnded, [(200, 200_000, 0, None, len(log), 0)])
    return log


@PER_TEST_FOLDER
@given(st.lists(any_events(INTS, but=RecordingEnded), max_size=30))
def test_loaded_log_equals_the_saved_log(tmp_path, events):
    log = complete(events)
    save(log, tmp_path / "t.agv")
    assert load(tmp_path / "t.agv") == log


@pytest.mark.one_in(4, reason="a file for each kind")
@settings(PER_TEST_FOLDER, max_examples=6)  # a file costs as much as hundreds of events
@given(st.data())
@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_every_kind_of_event_is_saved_and_loaded(tmp_path, kind, data):
    events = data.draw(st.lists(events_of(kind, INTS), min_size=1, max_size=8))
    log = Log.from_events(events)
    save(log, tmp_path / "t.agv")
    assert list(load(tmp_path / "t.agv")) == list(log)


def test_events_of_many_chunks_are_loaded_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(encode_stream, "CHUNK", 10)
    log = small_log()
    save(log, tmp_path / "t.agv")
    with pa.OSFile(str(tmp_path / "t.agv")) as raw:
        found = pa.ipc.open_file(raw)
        chunks = [found.get_batch(i).num_rows for i in range(found.num_record_batches)]
    assert sum(chunks) == len(log)
    assert max(chunks) == 10
    assert load(tmp_path / "t.agv") == log


def test_empty_log_has_no_end(tmp_path):
    save(Log(), tmp_path / "t.agv")
    log = load(tmp_path / "t.agv")
    assert (list(log), log.problem) == ([], "the recording has no end: it stops after 0 events")


def test_invalid_unicode_is_escaped(tmp_path):
    log = make_log(source("caf\udce9.py", 1, "x = '\U0001f525 \u202e\x00'"))
    save(log, tmp_path / "t.agv")
    (line,) = load(tmp_path / "t.agv").of(SourceLineRead)
    assert (line.filename, line.text) == ("caf\\udce9.py", "x = '\U0001f525 \u202e\x00'")


def test_equal_strings_are_one_object_after_loading(tmp_path):
    save(make_log(source("m.py", 1, "a"), source("m.py", 2, "b")), tmp_path / "t.agv")
    first, second = load(tmp_path / "t.agv").of(SourceLineRead)
    assert first.filename is second.filename


def test_arrow_readers_read_one_table_with_one_column_per_field(tmp_path):
    save(small_log(), tmp_path / "t.agv")
    with pa.OSFile(str(tmp_path / "t.agv")) as raw:
        table = pa.ipc.open_file(raw).read_all()
    assert table.schema.metadata[b"format_version"] == str(FORMAT_VERSION).encode()
    first_op = table.filter(pa.compute.equal(table["kind"], "OpCalled")).slice(0, 1).to_pylist()[0]
    assert (first_op["op"], first_op["outputs"], first_op["phase"], first_op["slot"]) == (
        "aten.exp.default",
        [1],
        "forward",
        None,
    )


def test_arrow_readers_read_single_columns_of_saved_and_streamed_files(tmp_path):
    log = small_log()
    save(log, tmp_path / "t.agv")
    stream = Stream(tmp_path / "streamed.agv")
    for pieces in encode_stream.split({kind: log.recent(kind) for kind in EVENT_TYPES}):
        stream.write(pieces)
    assert not is_arrow_file(stream.path)  # until it is finished
    assert load(stream.path) == log
    stream.close()
    for path in (tmp_path / "t.agv", stream.path):
        assert is_arrow_file(path)
        dataset = ds.dataset(path, format="ipc")
        assert dataset.count_rows(filter=ds.field("kind") == "OpCalled") == len(log.of(OpCalled))
        assert dataset.to_table(columns=["seq"]).num_rows == len(log)
        pa.ipc.open_file(path).read_all().validate(full=True)


def test_saving_replaces_the_file_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "t.agv"
    save(make_log(saved(1)), path)
    save(small_log(), path)
    assert load(path) == small_log()
    assert [each.name for each in tmp_path.iterdir()] == ["t.agv"]


def test_failed_save_keeps_the_old_file_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "t.agv"
    save(small_log(), path)
    broken = small_log()
    broken.extend_rows(SourceLineRead, [(300, 0, 0, None, "m.py", "not a number", "")])
    with pytest.raises(pa.ArrowInvalid):
        save(broken, path)
    assert load(path) == small_log()
    assert [each.name for each in tmp_path.iterdir()] == ["t.agv"]


def test_recording_without_an_end_has_a_problem(tmp_path):
    save(make_log(saved(1), unpacked(1)), tmp_path / "t.agv")
    assert load(tmp_path / "t.agv").problem == "the recording has no end: it stops after 3 events"


def test_recording_with_lost_events_has_a_problem_with_the_count(tmp_path):
    save(make_log(saved(1), ended(event_count=1_000)), tmp_path / "t.agv")
    assert load(tmp_path / "t.agv").problem == "3 of 1,001 events could be read"


def test_truncated_file_is_read_up_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(encode_stream, "CHUNK", 10)
    path = tmp_path / "t.agv"
    log = small_log()
    save(log, path)
    whole = path.read_bytes()
    everything = list(log)
    counts = set()
    stream = len(whole) - index_size(whole) - 8  # without the end of the stream and the index
    for length in range(len(whole) // 4, stream, 3_989):
        path.write_bytes(whole[:length])
        torn = load(path)
        assert list(torn) == everything[: len(torn)]
        assert torn.problem is not None
        assert "\n" not in torn.problem
        counts.add(len(torn))
    assert len(counts) > 5
    path.write_bytes(whole[:-100])  # the index is torn, which no event needs
    assert load(path) == log
    assert load(path).problem is None


@PER_TEST_FOLDER
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1))
def test_file_with_flipped_bits_is_read_partly_or_refused(tmp_path, flips):
    path = tmp_path / "t.agv"
    path.unlink(missing_ok=True)
    save(small_log(), path)
    content = bytearray(path.read_bytes())
    for place, bit in flips:
        content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with suppress(NotATraceError):
        log = load(path)
        assert len(log) <= len(small_log())
        assert len(list(log)) == len(log)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty. Traces are written by trace.save() and autogradviz run. [not-a-trace]"),
        (
            b"PK\x03\x04",
            "is not an autogradviz trace. Traces are written by trace.save() and autogradviz run. "
            "[not-a-trace]",
        ),
        (
            b"\xff" * 100,
            "is not an autogradviz trace, or its beginning is damaged. Traces are written by "
            "trace.save() and autogradviz run. [not-a-trace]",
        ),
    ],
)
def test_foreign_file_is_refused(tmp_path, content, message):
    path = tmp_path / "t.agv"
    path.write_bytes(content)
    with pytest.raises(NotATraceError) as caught:
        load(path)
    assert str(caught.value) == f"{path} {message}"


def test_foreign_arrow_stream_is_refused(tmp_path):
    path = tmp_path / "t.arrow"
    with pa.ipc.new_stream(path, pa.schema({"kind": pa.string()})):
        pass
    with pytest.raises(NotATraceError, match="is not an autogradviz trace"):
        load(path)


def write_stream(path, columns, version):
    metadata = {
        "format": "autogradviz-trace",
        "format_version": version,
        "autogradviz_version": "9",
    }
    with pa.ipc.new_stream(path, pa.schema(columns, metadata=metadata)):
        pass


def test_newer_format_is_refused_with_advice_to_upgrade(tmp_path):
    path = tmp_path / "t.agv"
    write_stream(path, {"kind": pa.string()}, str(FORMAT_VERSION + 1))
    with pytest.raises(
        NotATraceError, match=r"written by autogradviz 9, in a newer format .* Upgrade"
    ):
        load(path)


@pytest.mark.parametrize("version", ["1", str(FORMAT_VERSION - 1)])
def test_older_format_is_refused_with_advice_to_record_again(tmp_path, version):
    path = tmp_path / "t.agv"
    write_stream(path, {"kind": pa.string()}, version)
    message = r"written by autogradviz 9, in an older format .* Record again\."
    with pytest.raises(NotATraceError, match=message):
        load(path)
    with pytest.raises(NotATraceError, match=message):
        read_summary(path)
    with pytest.raises(NotATraceError, match=message):
        list(FollowedFile(path).read())


def test_unexpected_columns_are_refused(tmp_path):
    path = tmp_path / "t.agv"
    write_stream(path, {"kind": pa.string()}, str(FORMAT_VERSION))
    with pytest.raises(NotATraceError, match="its columns are not those of a trace"):
        load(path)


def test_pipe_or_device_is_refused_without_being_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(NotATraceError, match="is not a file"):
            load(path)


def test_large_foreign_file_is_not_read_completely(tmp_path):
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(2**43)  # a sparse file: no disk space, but 8 TB of memory if read
    with pytest.raises(NotATraceError, match="is not an autogradviz trace"):
        load(tmp_path / "zeros")


def test_folder_is_refused_and_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotATraceError, match="is a folder, not a trace"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.agv")


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("kind", "Exploit", "unknown kind of event 'Exploit'"),
        ("kind", None, "unknown kind of event ''"),
        ("seq", None, "a SourceLineRead without seq"),
        ("text", None, "a SourceLineRead without text"),
    ],
)
def test_unexpected_values_are_reported_and_not_read(tmp_path, column, value, reason):
    path = tmp_path / "t.agv"
    save(make_log(source("m.py", 1, "x")), path)
    with pa.OSFile(str(path)) as raw:
        table = pa.ipc.open_file(raw).read_all()
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    table = table.set_column(index, field, pa.array([value], field.type))
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    log = load(path)
    assert (list(log), log.problem) == (
        [],
        f"the file is cut off or damaged; nothing is left ({reason})",
    )
