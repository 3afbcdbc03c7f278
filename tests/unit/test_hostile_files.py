"""Manipulated files: no crash, no hang, no unbounded memory, no code execution."""

import functools
import io
import resource
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import make_log as m
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import autogradviz
from autogradviz.analysis import Analysis
from autogradviz.errors import NotATraceError
from autogradviz.event_log import (
    columns_of,
    described_schema,
    load,
    save,
    trace_file,
    write_options,
)
from autogradviz.event_log.arrow_message_sizes import OversizedError, read_messages
from autogradviz.events import OpCalled, SourceLineRead

pytestmark = pytest.mark.one_in(5, reason="reads thousands of files", in_ci=1)

HOSTILE = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63), 2**63 - 1]),
    st.integers(-(2**63), 2**63 - 1),
)


@functools.cache
def whole():
    facts = [
        m.began(),
        *[m.op("exp", (n % 5,), nr=n, at=f"train.py:{n % 9}") for n in range(60)],
        *[m.node(n, "ExpBackward0", nr=n, to=(n - 1,)) for n in range(60)],
        m.source("train.py", 3, "x = y.exp()"),
    ]
    log = m.make_log(facts, m.ended(event_count=len(m.make_log(facts))))
    target = io.BytesIO()
    with pa.ipc.new_stream(target, described_schema(), options=write_options()) as stream:
        for batch in trace_file.batches(log):
            stream.write_batch(batch)
    return target.getvalue(), len(log)


def check(path, content):
    """Load arbitrary bytes; the result is a log that can be read to its end, or NotATraceError."""
    path.write_bytes(content)
    with suppress(NotATraceError):
        log = load(path)
        events = list(log)
        assert len(events) == len(log) <= 6 * whole()[1]
        assert log.problem is None or "\n" not in log.problem
        list(Analysis(log).graph.nodes)


@HOSTILE
@given(st.data())
def test_truncated_file_is_read_up_to_its_end(tmp_path, data):
    content, _ = whole()
    length = data.draw(st.integers(0, len(content) - 1))
    check(tmp_path / "x.agv", content[:length])
    with suppress(NotATraceError):
        assert load(tmp_path / "x.agv").problem is not None or length >= len(content) - 8


@HOSTILE
@given(st.data())
def test_file_with_flipped_bits_is_read_or_refused(tmp_path, data):
    content = bytearray(whole()[0])
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    check(tmp_path / "x.agv", bytes(content))


@HOSTILE
@given(st.data())
def test_file_with_hostile_lengths_is_read_or_refused(tmp_path, data):
    content = bytearray(whole()[0])
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from("iq"))
        width = struct.calcsize(kind)
        place = data.draw(st.integers(0, len(content) - width)) // 4 * 4
        number = data.draw(NUMBERS)
        number = (number + 2 ** (8 * width - 1)) % 2 ** (8 * width) - 2 ** (8 * width - 1)
        struct.pack_into(f"<{kind}", content, place, number)
    check(tmp_path / "x.agv", bytes(content))


@HOSTILE
@given(st.lists(st.sampled_from(["head", "batch", "rest", "noise"]), max_size=6), st.binary())
def test_file_with_shuffled_pieces_is_read_or_refused(tmp_path, order, noise):
    content, _ = whole()
    first, batch = list(read_messages(content))[:2]
    pieces = {
        "head": content[: first.end],
        "batch": content[batch.start : batch.end],
        "rest": content[batch.end :],
        "noise": noise,
    }
    check(tmp_path / "x.agv", b"".join(pieces[name] for name in order))


def bomb(path, rows, text):
    """Write a small file that expands to a very large table."""
    schema = described_schema()
    columns = {
        "kind": pa.repeat(pa.scalar("SourceLineRead"), rows),
        "text": pa.repeat(pa.scalar(text), rows),
        "filename": pa.repeat(pa.scalar("x.py"), rows),
        **{n: pa.repeat(pa.scalar(0, pa.int64()), rows) for n in ("seq", "time_ns", "thread")},
        "lineno": pa.repeat(pa.scalar(0, pa.int64()), rows),
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    with pa.ipc.new_stream(path, schema, options=write_options()) as stream:
        stream.write_batch(pa.record_batch(arrays, schema=schema))


def test_oversized_batch_is_refused_before_it_is_read(tmp_path):
    bomb(tmp_path / "bomb.agv", 400_000, "x" * 1_000)
    assert (tmp_path / "bomb.agv").stat().st_size < 5_000_000
    before = pa.total_allocated_bytes()
    log = load(tmp_path / "bomb.agv")
    assert len(log) == 0
    assert "a batch would take" in log.problem
    assert pa.total_allocated_bytes() == before


def test_many_small_bombs_are_refused(tmp_path):
    path = tmp_path / "bomb.agv"
    bomb(path, 200, "x" * 100_000)
    content = path.read_bytes()
    first, batch = list(read_messages(content))[:2]
    many = content[: first.end] + content[batch.start : batch.end] * 300
    with pytest.raises(OversizedError):
        list(read_messages(many))


def test_false_buffer_size_allocates_no_memory(tmp_path):
    content = bytearray(whole()[0])
    batch = list(read_messages(bytes(content)))[1]
    sizes = [
        i
        for i in range(batch.start, batch.end - 8, 8)
        if 0 < int.from_bytes(content[i : i + 8], "little") < 4_000
    ]
    for place in sizes[-40:]:
        struct.pack_into("<q", content, place, 2**40)
    (tmp_path / "x.agv").write_bytes(content)
    code = (
        "import resource, sys, autogradviz\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "print(autogradviz.load(sys.argv[1]).log.problem)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.agv")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "damaged" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 4 << 30


def test_large_recordings_are_within_the_limits(tmp_path):
    log = m.make_log(
        [m.op("exp", (1,), inputs=(1,), nr=n, at=f"train.py:{n % 9}") for n in range(50_000)]
    )
    save(log, tmp_path / "x.agv")
    assert list(load(tmp_path / "x.agv")) == list(log)


def test_only_the_requested_columns_are_read(tmp_path):
    facts = [m.op("exp", (n,), nr=n) for n in range(100)]
    log = m.make_log(facts, m.source("train.py", 3, "x = y.exp()"))
    save(log, tmp_path / "x.agv")
    table = columns_of(tmp_path / "x.agv", OpCalled)
    assert table["op"].to_pylist() == ["aten.exp.default"] * 100
    assert "text" not in table.column_names
    read = load(tmp_path / "x.agv")
    assert len(read) == len(log)
    assert read.of(SourceLineRead) == log.of(SourceLineRead)
    assert set(read._columns) == {SourceLineRead}
    assert list(read) == list(log)


def test_no_code_in_a_file_is_executed():
    folder = Path(autogradviz.__file__).parent / "event_log"
    sources = {path.name: path.read_text() for path in folder.rglob("*.py")}
    assert len(sources) > 5
    for word in ("pickle", "eval(", "exec(", "__import__", "importlib"):
        assert not any(word in source for source in sources.values())
    # Only rows recorded by this process are marshalled, never rows of a file.
    assert {name for name, source in sources.items() if "import marshal" in source} == {
        "compressed_rows.py"
    }
    assert {name for name, source in sources.items() if "import CompressedRows" in source} == {
        "log.py"
    }


def test_rows_of_a_file_are_not_unmarshalled(tmp_path, monkeypatch):
    log = m.make_log(m.op("exp", (0,)), m.source("train.py", 3, "x = y.exp()"))
    log.compress(10_000)
    save(log, tmp_path / "x.agv")
    whole = list(log)
    monkeypatch.delattr("autogradviz.event_log.compressed_rows.marshal.loads")
    assert list(load(tmp_path / "x.agv")) == whole


@pytest.mark.parametrize("number", [-5, 2**62])
def test_report_of_nodes_with_impossible_numbers_is_written(number, tmp_path):
    log = m.make_log(
        [m.began(), m.node(number, "ExpBackward0", nr=1), m.node(3, "MulBackward0", nr=2)]
    )
    save(log, tmp_path / "odd.agv")
    autogradviz.load(tmp_path / "odd.agv").html(tmp_path / "odd.html")
    assert "ExpBackward0" in autogradviz.load(tmp_path / "odd.agv").why(number).target
