"""Names of notebook cells in findings."""

import pytest

from autogradviz.analysis import SourceLocation
from autogradviz.diagnose import Finding
from autogradviz.diagnose.notebook_cell_names import with_cell_names

FILE = "/tmp/ipykernel_7/456.py"


def finding(explanation):
    place = SourceLocation(filename=FILE, lineno=2, function="f", text="x = 1")
    return Finding(
        slug="graph-lost", title="lost", culprit=place, victim=None, explanation=explanation,
        fix="", confidence="certain", events=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at 456.py:2", "at In [3], line 2"),
        (f"    {FILE}:2, in f", "    In [3], line 2, in f"),
        ("    ipykernel_7/456.py:2, in f", "    In [3], line 2, in f"),
        ("(456.py:2)", "(In [3], line 2)"),
        ("at 123456.py:2", "at 123456.py:2"),
        ("at /tmp/ipykernel_7/123456.py:2", "at /tmp/ipykernel_7/123456.py:2"),
        ("456.py without a line", "456.py without a line"),
    ],
)
def test_file_of_a_cell_is_named_as_the_cell(text, expected):
    named = with_cell_names(finding(text), {FILE: 3})
    assert named.explanation == expected
    assert str(named.culprit) == "In [3], line 2"
