"""What changed between two recordings."""

import json

import make_log as m

import autogradviz
from autogradviz import log
from autogradviz.cli import main
from autogradviz.comparison import Comparison, Difference, compare
from autogradviz.trace import Trace

STEP = (
    m.tensor(1),
    m.tensor(2),
    m.op("exp", (1,), nr=0, at="train.py:4"),
    m.node(1, "ExpBackward0", nr=0),
    m.saved(1, 1, node=1, slot="result", nr=0),
)


def trace(*facts):
    return Trace(m.make_log(*facts, m.ended(event_count=len(m.make_log(*facts)))))


def told(comparison):
    return [(d.aspect, d.what, d.before, d.after) for d in comparison]


def test_the_same_recording_has_no_differences():
    comparison = compare(trace(*STEP), trace(*STEP))
    assert not comparison
    assert repr(comparison) == "No differences."
    assert comparison._repr_html_() == "<p>No differences.</p>"


def test_another_operator_and_what_it_saves_are_told():
    other = (
        m.tensor(1),
        m.tensor(2),
        m.op("tanh", (1,), nr=0, at="train.py:4"),
        m.node(1, "TanhBackward0", nr=0),
        m.saved(1, 1, node=1, slot="result", nr=0),
    )
    assert told(compare(trace(*STEP), trace(*other))) == [
        ("ops", "exp, forward", "1", "0"),
        ("ops", "tanh, forward", "0", "1"),
        (
            "ops",
            "first difference",
            "exp → float32[8] at train.py:4",
            "tanh → float32[8] at train.py:4",
        ),
        ("saved", "ExpBackward0.result", "1", "0"),
        ("saved", "TanhBackward0.result", "0", "1"),
    ]


def test_more_saved_bytes_and_a_write_are_told():
    more = (
        *STEP,
        m.op("mul_", (1,), inputs=(1,), writes=(1,)),
        m.bumped("aten.mul_.Tensor", op_seq=6),
        m.saved(2, 2, node=1, slot="other", nr=0),
    )
    differences = told(compare(trace(*STEP), trace(*more)))
    assert ("saved", "bytes at the peak", "32 B", "64 B") in differences
    assert ("writes", "mul_ on a saved tensor", "0", "1") in differences


def test_values_are_compared_where_both_know_them():
    def step(content):
        return trace(m.tensor(1), m.op("exp", (1,), output_hashes=(content,)))

    assert told(compare(step(5), step(6))) == [
        ("values", "first difference", "exp → float32[8]", "exp → float32[8]")
    ]
    assert not compare(step(5), step(-1))


def test_errors_are_compared():
    failing = trace(*STEP, m.raised("RuntimeError", "no", node=1))
    assert told(compare(trace(*STEP), failing)) == [("error", "raised", "none", "RuntimeError")]


def test_hostile_names_stay_text():
    name = "<script>alert(1)</script>\x1b[2J[bold]"
    comparison = Comparison(
        (Difference(aspect="ops", what=name, before="1", after="2"),), titles=("<b>", name)
    )
    assert "<script>" not in comparison._repr_html_()
    assert "&lt;script&gt;" in comparison._repr_html_()
    assert "\x1b" not in repr(comparison)
    assert "[bold]" in repr(comparison)


def test_the_command_compares(tmp_path, capsys):
    for name, facts in (("a", STEP), ("b", STEP[:3])):
        log.save(trace(*facts).log, tmp_path / f"{name}.agv")
    a, b = str(tmp_path / "a.agv"), str(tmp_path / "b.agv")
    assert main(["compare", a, a]) == 0
    assert main(["compare", a, b, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No differences.\n")
    (saved, peak) = json.loads(out.removeprefix("No differences.\n"))
    assert (saved["what"], saved["after"]) == ("ExpBackward0.result", "0")
    assert peak["what"] == "bytes at the peak"


def test_it_is_public():
    assert autogradviz.compare is compare
