"""Source text and folder names are removed."""

import make_log as m
import pytest

from autogradviz.event_log import load
from autogradviz.event_log.compare_state_readings import StateValue
from autogradviz.event_log.filter_and_redact import redact, without_folders
from autogradviz.events import EffectRepeated, ErrorRaised, FrameSeen, SourceLineRead, StateChanged
from autogradviz.trace import Trace

SECRET = "password = 'hunter2'"


@pytest.fixture
def trace():
    facts = [
        m.began(torch_version="2.13.0"),
        m.op("exp", (1,), nr=0, at="/home/lovelace/secret project/train.py:4"),
        m.node(1, "ExpBackward0", nr=0),
        m.saved(1, 1, node=1, slot="result", nr=0),
        m.op("add_", (1,), inputs=(1,), writes=(1,), at="/home/lovelace/secret project/train.py:5"),
        m.bumped("aten.add_.Tensor", op_seq=5, at="/home/lovelace/secret project/train.py:5"),
        m.backward(roots=(1,)),
        m.started(1),
        m.unpacked(1, seen=1, node=1),
        m.raised(
            "RuntimeError", "modified by an inplace operation; see /home/lovelace/x/log.txt", node=1
        ),
        m.backward_ended(failed=True),
        m.source("/home/lovelace/secret project/train.py", 4, SECRET),
    ]
    return Trace(m.make_log(facts, m.ended(event_count=len(m.make_log(facts)))))


def test_redacted_file_contains_no_source_and_no_folder(trace, tmp_path):
    trace.save(tmp_path / "x.agv", redact=True)
    log = load(tmp_path / "x.agv")
    assert log.of(SourceLineRead) == ()
    assert {frame.filename for frame in log.of(FrameSeen)} == {"train.py"}
    assert {frame.text for frame in log.of(FrameSeen)} == {""}
    assert log.of(ErrorRaised)[0].message == "modified by an inplace operation; see log.txt"


@pytest.mark.parametrize("kind", [StateChanged, EffectRepeated])
def test_values_of_variables_are_removed(kind):
    path = ("os", "environ", "['TOKEN']")
    text = m.state_change(kind, path, m.value("None"), m.value("'hunter2'"))
    number = m.state_change(kind, path, m.value("1234", 1234.0), m.value("9876", 9876.0))
    mode = m.state_change(kind, ("modes",), StateValue("mode", "Hunter2", names=("Hunter2",)), None)
    redacted = str(redact(m.make_log(text, number, mode)).of(kind))
    assert [word for word in ("unter2", "1234", "9876") if word in redacted] == []
    assert "TOKEN" in redacted


def test_findings_keep_their_lines(trace):
    (whole,) = trace.diagnose()
    (finding,) = trace.redacted().diagnose()
    assert (finding.slug, str(finding.culprit)) == (whole.slug, "train.py:5")


@pytest.mark.parametrize("name", ["x.html", "x.svg", "x.graphml", "x.json", "x.sqlite", "x.gv"])
def test_redacted_outputs_contain_no_private_text(trace, tmp_path, name):
    path = tmp_path / name
    if name == "x.html":
        trace.html(path, redact=True)
    elif name == "x.svg":
        trace.graph(redact=True).svg(path)
    else:
        trace.export(path, redact=True)
    content = path.read_bytes()
    assert b"lovelace" not in content
    assert b"secret project" not in content
    assert b"hunter2" not in content


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/home/lovelace/train.py", "train.py"),
        ("/train.py:3", "train.py:3"),
        ("~/work/train.py", "train.py"),
        (r"C:\Users\ada\train.py", "train.py"),
        ("no such file: '/a/b c/d.txt'", "no such file: 'd.txt'"),
        ("/usr/lib/site-packages/torch/optim/sgd.py", "…/torch/optim/sgd.py"),
        ("h.0.attn", "h.0.attn"),
        ("either/or, 1/2, a / b", "either/or, 1/2, a / b"),
        ("<ipython-input-3>", "<ipython-input-3>"),
        ("src/train.py", "src/train.py"),
        ("aten.add_.Tensor", "aten.add_.Tensor"),
    ],
)
def test_only_absolute_paths_are_shortened(text, redacted):
    assert without_folders(text) == redacted
