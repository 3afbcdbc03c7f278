"""Names of notebook cells in findings."""

import pytest

from autogradviz.analysis import SourceLocation
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.places_of_facts import with_cell_names

FILE = "/tmp/ipykernel_7/456.py"


def fact(explanation):
    place = SourceLocation(filename=FILE, lineno=2, function="f", text="x = 1")
    return Fact(
        mechanism="cut", effect="lost", culprit=place, weight=1.0, explanation=(explanation, place)
    )


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
    named = with_cell_names(fact(text), {FILE: 3}).finding()
    assert named.explanation == f"{expected}\n    In [3], line 2, in f\n        x = 1"
    assert str(named.culprit) == "In [3], line 2"
