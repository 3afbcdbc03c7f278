"""A saved tensor that was packed by saved-tensor hooks and written before its unpack."""

from __future__ import annotations

from make_log import began, node, op, saved, unpacked
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.saved_tensors_written import write_hidden_by_hooks


def hidden(*, by="user", seen=1, seen_hash=6, options=("ops", "stacks", "fingerprints")):
    return run_rule(
        write_hidden_by_hooks,
        began(options=options),
        op("exp", (1,), nr=1, at="t.py:2"),
        node(7, "ExpBackward0", nr=1),
        saved(1, 1, nr=1, node=7, slot="result", by=by),
        op("mul_", (1,), inputs=(1,), writes=(1,), at="t.py:4"),
        unpacked(1, node=7, version=0, seen=seen, saved_hash=5, seen_hash=seen_hash),
    )


def test_write_hidden_by_hooks_is_reported():
    (finding,) = hidden()
    assert finding.slug == "hidden-write"
    assert lines(finding) == ("t.py:4", "t.py:2")
    assert (finding.confidence, finding.nodes) == ("certain", (7,))
    assert finding.title == "ExpBackward0.result was written before backward, and hooks hid it"


def test_same_version_or_content_gives_no_finding():
    assert hidden(seen=0) == []
    assert hidden(seen_hash=5) == []


def test_save_without_user_hooks_gives_no_finding():
    assert hidden(by="pytorch") == []


def test_rule_needs_ops_and_fingerprints():
    assert hidden(options=("ops", "stacks")) == []
    assert hidden(options=("ops", "stacks", "values")) != []  # the old name of fingerprints
