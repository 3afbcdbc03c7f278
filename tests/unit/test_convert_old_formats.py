"""Files of format version 2, in which state events have no typed fields."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import autogradviz
from autogradviz.errors import NotATraceError
from autogradviz.event_log import FORMAT_VERSION, load, save
from autogradviz.event_log.convert_old_formats import read_path, read_text
from autogradviz.event_log.state_value_diff import StateValue, find_change_kind
from autogradviz.events import (
    ContextTensorKept,
    EffectRepeated,
    ModeChanged,
    RecorderFailed,
    RecorderLimited,
    RegionCutOff,
    StateChanged,
    path_text,
)

FILES = Path(__file__).parent.parent / "fixtures" / "format_2"


def typed(event):
    return (
        event.state_name,
        event.value_kind,
        event.change_kind,
        event.before_number,
        event.after_number,
        event.before_id,
        event.after_id,
        event.version,
        event.seen_version,
    )


NONE = (None,) * 6


def test_state_changes_are_parsed_from_their_text():
    found = [typed(event) for event in load(FILES / "diverges.agv").of(StateChanged)]
    assert found == [
        ("self.deep", "plain", "value", *NONE),
        ("self.mask", "tensor", "version", None, None, 2, 2, 0, 1),
        ("self.chance", "rng", "value", *NONE),
        ("self.lengths", "array", "content", *NONE),
        ("self.owner", "object", "removed", None, None, 4, None, None, None),
        ("self.target", "weak_reference", "died", *NONE),
        ("self.lookup", "cache", "size", 0, 1, None, None, None, None),
        ("self.source", "iterator", "value", 3, 2, None, None, None, None),
        ("self.options['tables']", "container", "size", 1, 2, None, None, None, None),
        ("self.fc.weight", "tensor", "requires_grad", None, None, 6, 6, 1, 1),
        ("default dtype", "mode", "value", *NONE),
        ("self._forward_hooks", "hooks", "added", None, 1, None, None, None, None),
        ("self._forward_hooks[0]", "plain", "added", *NONE),
        ("self.act", "object", "added", None, None, None, 10, None, None),
        ("self.act.training", "plain", "added", *NONE),
        ("self.act.inplace", "plain", "added", *NONE),
        ("self.options['tables'][1]", "plain", "added", None, 2, None, None, None, None),
    ]


def test_other_events_are_parsed_from_their_text():
    log = load(FILES / "drifts.agv")
    (counted, grown) = log.of(EffectRepeated)
    assert (counted.state_path, counted.before_number, counted.after_number) == (
        ("self", "calls"), 0, 2,
    )  # fmt: skip
    assert (grown.before, grown.after, grown.change_kind) == ("len 0", "len 2", "size")
    assert {(e.mode, e.device_type) for e in log.of(ModeChanged)} == {
        ("grad", None),
        ("autocast", "cpu"),
    }
    assert [e.cut_off for e in log.of(RegionCutOff)] == ["arguments"]
    assert [(e.attribute, e.slot) for e in log.of(ContextTensorKept)] == [("root", "ctx.root")]


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        (
            "diverges",
            [
                ("checkpoint-captured-tensor-mutated", "certain", "diverges.py:41",
                 "diverges.py:32"),
                ("checkpoint-different-number", "likely", "diverges.py:49", "diverges.py:33"),
            ],
        ),
        (
            "drifts",
            [
                ("reentrant-no-grad-input", "certain", "drifts.py:37", "drifts.py:37"),
                ("checkpoint-effect-repeated", "hint", "drifts.py:27", "drifts.py:29"),
            ],
        ),
    ],
)  # fmt: skip
def test_findings_equal_those_of_the_version_that_wrote_the_file(monkeypatch, name, findings):
    monkeypatch.chdir(FILES)  # the folder of the sources
    found = autogradviz.load(f"{name}.agv").diagnose()
    assert [(f.slug, f.confidence, str(f.culprit), str(f.victim)) for f in found] == findings


@pytest.mark.parametrize("name", ["diverges", "drifts"])
def test_old_file_is_saved_in_the_current_format(tmp_path, name):
    log = load(FILES / f"{name}.agv")
    save(log, tmp_path / "new.agv")
    with pa.ipc.open_file(tmp_path / "new.agv") as stream:
        assert stream.schema.metadata[b"format_version"] == str(FORMAT_VERSION).encode()
    assert load(tmp_path / "new.agv") == log


def test_hook_points_of_failures_and_limits_are_read(tmp_path):
    with pa.ipc.open_stream(FILES / "drifts.agv") as stream:
        schema, rows = stream.schema, stream.read_all().to_pylist()
    limited = {"kind": "RecorderLimited", "seam": "backward", "message": "compiled"}
    failed = {"kind": "RecorderFailed", "seam": "ops", "message": "ValueError"}
    added = [{**rows[0], **limited, "seq": 1_000}, {**rows[0], **failed, "seq": 1_001}]
    with pa.ipc.new_stream(tmp_path / "x.agv", schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([*rows, *added], schema=schema))
    log = load(tmp_path / "x.agv")
    assert [(e.hook_point, e.message) for e in log.of(RecorderLimited)] == [
        ("backward", "compiled")
    ]
    assert [(e.hook_point, e.message) for e in log.of(RecorderFailed)] == [("ops", "ValueError")]


@pytest.mark.parametrize("column", ["state_name", "state_kind", "before", "after"])
def test_file_without_a_text_column_is_damaged(tmp_path, column):
    with pa.ipc.open_stream(FILES / "diverges.agv") as stream:
        (batch,) = stream
        without = batch.drop_columns([column])
        schema = without.schema.with_metadata(stream.schema.metadata)
    with pa.ipc.new_stream(tmp_path / "x.agv", schema) as writer:
        writer.write_batch(pa.record_batch(without.columns, schema=schema))
    log = load(tmp_path / "x.agv")
    assert len(log) == 0
    assert f"an event without {column}" in log.problem


def test_damaged_file_is_read_up_to_the_damage(tmp_path):
    content = (FILES / "drifts.agv").read_bytes()
    for place in range(0, len(content), 997):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        (tmp_path / "x.agv").write_bytes(damaged)
        with suppress(NotATraceError):
            log = load(tmp_path / "x.agv")
            assert log.problem is not None or len(log) == 236


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("x", ("x",)),
        ("self.layers[1].bias", ("self", "layers", "[1]", "bias")),
        ("cache['a.b'].x", ("cache", "['a.b']", "x")),
        ('os.environ["it\'s"]', ("os", "environ", '["it\'s"]')),
        ("names.[0]", ("names", "[0]")),
        ("odd[[1]]", ("odd[[1]]",)),
    ],
)
def test_names_are_split_into_path_steps(name, path):
    assert read_path(name) == path
    assert path_text(path) == name.replace(".[", "[")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("absent", "1", "added"),
        ("1", "absent", "removed"),
        ("1", "'one'", "value"),
        ("None", "len 2", "type"),
        ("len 3", "len 2", "size"),
        ("len 3, 'a' first", "len 3, 'b' first", "content"),
        ("0 cached", "4 cached", "size"),
        ("alive", "dead", "died"),
        ("Linear #3", "Linear #4", "identity"),
        ("Linear #3", "Identity #3", "class"),
        ("Linear #3", "Identity #4", "value"),
        ("float32 2×4 #1 v0", "float32 2×4 #1 v1", "version"),
        ("float32 2×4 #1 v0", "float32 2×4 #2 v0", "identity"),
        ("float32 2×4 #1 v0", "float32 2×4 #1 v0, requires grad", "requires_grad"),
        ("float32 2×4 #1 v0", "float32 2×4 #1 v1, requires grad", "value"),
        ("float32 2×4 cuda:0 #1 v0", "float32 2×4 #1 v0", "value"),
        ("float32 2  v0", "float32 2  v1", "version"),
        ("state 00000000", "state 00000001", "value"),
        ("'v1'", "'v2'", "value"),
        ("'#1'", "'#2'", "value"),
    ],
)
def test_change_kind_is_derived_from_the_texts(before, after, kind):
    readings = [read_text(text, "object", "x") for text in (before, after)]
    assert find_change_kind(*readings) == kind


def test_mode_names_are_split():
    assert read_text("First, Second", "context", "torch function modes") == StateValue(
        "mode", "First, Second", names=("First", "Second")
    )
    assert read_text("none", "context", "torch function modes") == StateValue("mode", "none")
    assert read_text("on", "context", "oneDNN") == StateValue("mode", "on")
