"""Arrays put together from buffers are those that pyarrow makes, and need no pandas."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogradviz.log.arrays import make_array, put_together

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
@given(data=st.data())
def test_what_is_put_together_is_what_pyarrow_makes(type_, data):
    values = tuple(data.draw(st.lists(st.none() | VALUES[type_], max_size=20)))
    made = put_together(values, type_)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))
    assert make_array(values, type_).equals(made)


@pytest.mark.parametrize("make", [make_array, put_together])
def test_lone_surrogates_are_spelled_out(make):
    assert make(("a\udc80", None), pa.string()).to_pylist() == ["a\\udc80", None]
    assert make((("a\udc80",), ()), pa.list_(pa.string())).to_pylist() == [["a\\udc80"], []]


def test_sealing_imports_no_pandas():
    pytest.importorskip("pandas")
    program = """
import sys
from autogradviz import events
from autogradviz.log import Log
log = Log()
log.extend_rows(events.ModuleSeen, [(i, i, 0, None, i, None, "h", "Net") for i in range(9)])
log.seal(8)
assert (len(log.sealed), log.recent_count) == (8, 1)
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout == b"False\n"
