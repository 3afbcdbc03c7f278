"""Arrays built from buffers equal the arrays of pyarrow, and need no pandas."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autogradviz.event_log.arrow_arrays import build_from_buffers, make_array

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = {
    pa.int64(): INTEGERS,
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.list_(pa.int64()): st.lists(INTEGERS, max_size=3).map(tuple),
    pa.list_(pa.string()): st.lists(TEXT, max_size=3).map(tuple),
}


@pytest.mark.parametrize("type_", VALUES, ids=str)
@settings(deadline=None)  # the first array imports pandas
@given(data=st.data())
def test_built_array_equals_the_array_of_pyarrow(type_, data):
    values = tuple(data.draw(st.lists(st.none() | VALUES[type_], max_size=20)))
    made = build_from_buffers(values, type_)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))
    assert make_array(values, type_).equals(made)


@pytest.mark.parametrize("make", [make_array, build_from_buffers])
def test_lone_surrogates_are_escaped(make):
    assert make(("a\udc80", None), pa.string()).to_pylist() == ["a\\udc80", None]
    assert make((("a\udc80",), ()), pa.list_(pa.string())).to_pylist() == [["a\\udc80"], []]


def compresses_and_saves(many, path):
    """Return whether pandas is imported after compressing rows, and after saving the rest."""
    pytest.importorskip("pandas")
    program = f"""
import sys
from autogradviz import events
from autogradviz.event_log import Log, save, trace_file
trace_file.MANY = {many}
log = Log()
log.extend_rows(events.ModuleSeen, [(i, i, 0, None, i, None, "h", "Net") for i in range(9)])
log.compress(4)
assert (len(log.segments), log.recent_count) == (4, 5)
print("pandas" in sys.modules)
save(log, {str(path)!r})
print("pandas" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def test_compressing_and_saving_a_few_rows_imports_no_pandas(tmp_path):
    assert compresses_and_saves(9, tmp_path / "run.agv") == ["False", "False"]


def test_saving_many_rows_imports_pandas(tmp_path):
    assert compresses_and_saves(8, tmp_path / "run.agv") == ["False", "True"]
