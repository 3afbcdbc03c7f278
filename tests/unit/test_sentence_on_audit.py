"""Sentence on the audit of a recording without findings."""

from __future__ import annotations

import pytest

from autogradviz.causes.order_of_facts import weight
from autogradviz.causes.sentence_on_audit import sentence_on_audit
from autogradviz.diagnose.fact import Fact
from autogradviz.event_log.stacks import SourceLocation


def fact(lineno, mechanism="cut", **fields):
    place = SourceLocation(filename="/a/net.py", lineno=lineno, function="f", text="x.detach()")
    return Fact(
        mechanism=mechanism, effect="", culprit=place, share=0.5, **{"weight": 0.0125, **fields}
    )


def test_a_line_that_cuts_a_path_is_named_once():
    sentence = sentence_on_audit([fact(5), fact(5)], ())
    assert sentence.text == "1 line cuts a gradient path (net.py:5)"
    assert [line.lineno for line in sentence.lines] == [5]


def test_several_lines_are_counted():
    sentence = sentence_on_audit([fact(5), fact(9)], ())
    assert sentence.text == "2 lines cut a gradient path (net.py:5, net.py:9)"


@pytest.mark.parametrize(
    ("facts", "findings"),
    [
        ([], ()),
        ([fact(5)], ("a finding",)),
        ([fact(5, mechanism="keep")], ()),
        ([fact(5, weight=weight("cut without effect", 0.5))], ()),
    ],
)
def test_no_sentence_without_a_cut_that_has_an_effect(facts, findings):
    assert sentence_on_audit(facts, findings) is None
