"""Exported traces, read by the libraries of the target programs."""

import json
import sqlite3
import sys
from collections import Counter

import networkx as nx
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.cli import main
from autogradviz.errors import MissingExtraError, OutputExistsError, UnknownFormatError
from autogradviz.events import OpCalled


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    with autogradviz.record(model) as recorded:
        hidden = checkpoint(lambda x: model[0](x).tanh(), torch.randn(3, 4), use_reentrant=False)
        model[1](hidden).exp().sum().backward()
    return recorded


def test_parquet_contains_all_events(trace, tmp_path):
    trace.export(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.num_rows == len(trace.log)
    frame = pd.read_parquet(tmp_path / "x.parquet")
    names = frame[frame["kind"] == "OpCalled"].sort_values("seq")["op"].tolist()
    assert names == [op.op for op in trace.log.of(OpCalled)]


def test_sqlite_has_a_table_per_event_kind(trace, tmp_path):
    trace.export(tmp_path / "x.sqlite")
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        rows = database.execute('SELECT op, outputs, failed FROM "OpCalled" ORDER BY seq')
        assert rows.fetchall() == [
            (op.op, json.dumps(list(op.outputs)), 0) for op in trace.log.of(OpCalled)
        ]
        query = (
            "SELECT n.node_name, COUNT(*) FROM TensorSaved s JOIN NodeSeen n USING (node_id)"
            " GROUP BY 1"
        )
        saves = dict(database.execute(query).fetchall())
    assert saves["ExpBackward0"] == 1


def test_graphml_equals_the_graph(trace, tmp_path):
    trace.export(tmp_path / "x.graphml")
    read = nx.read_graphml(tmp_path / "x.graphml")
    graph = trace.analysis.graph
    assert read.number_of_nodes() == len(graph.nodes)
    assert {(int(a[1:]), int(b[1:])) for a, b in read.edges()} == {
        (edge.source, edge.target) for edge in graph.edges
    }
    assert {data["name"] for _, data in read.nodes(data=True)} == {
        node.name for node in graph.nodes.values()
    }
    exp = next(data for _, data in read.nodes(data=True) if data["name"] == "ExpBackward0")
    assert (exp["saved_nbytes"], exp["op"], exp["runs"]) == (12, "aten.exp.default", 1)


def test_model_explorer_json_has_modules_as_namespaces(trace, tmp_path):
    trace.export(tmp_path / "x.json")
    collection = json.loads((tmp_path / "x.json").read_text())
    assert collection["label"] == "Sequential"
    (graph,) = collection["graphs"]
    by_id = {node["id"]: node for node in graph["nodes"]}
    assert len(by_id) == len(trace.analysis.graph.nodes)
    exp = next(node for node in by_id.values() if node["label"] == "exp")
    (edge,) = exp["incomingEdges"]
    before = by_id[edge["sourceNodeId"]]
    assert (before["label"], before["namespace"]) == ("addmm", "1")
    assert exp["outputsMetadata"] == [
        {"id": "0", "attrs": [{"key": "shape", "value": "float32[3, 1]"}]}
    ]


def test_dot_equals_the_initially_open_graph(trace, tmp_path):
    trace.export(tmp_path / "x.gv")
    assert (tmp_path / "x.gv").read_text() == trace.graph().dot()


def test_perfetto_has_tracks_bytes_and_flows(trace, tmp_path):
    trace.export(tmp_path / "x.pftrace")
    read = PerfettoTrace()
    read.ParseFromString((tmp_path / "x.pftrace").read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in read.packet}
    events = [p for p in read.packet if p.HasField("track_event")]
    names = {uuid: [] for uuid in tracks}
    depth = Counter()
    for packet in events:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            depth[event.track_uuid] += 1
            names[event.track_uuid].append(event.name)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            depth[event.track_uuid] -= 1
            assert depth[event.track_uuid] >= 0
    assert set(depth.values()) == {0}
    by_name = {tracks[uuid]: found for uuid, found in names.items()}
    assert by_name["forward"] == ["forward"]
    assert by_name["backward"] == ["backward"]
    assert len(by_name["recomputation"]) == 1
    assert "tanh" in by_name["recomputation ops"]
    assert {"ExpBackward0", "TanhBackward0"} <= set(by_name["backward nodes"])
    begins = [p.track_event for p in events if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    out = {flow: event.name for event in begins for flow in event.flow_ids}
    ends = {flow: event.name for event in begins for flow in event.terminating_flow_ids}
    assert {(out[flow], name) for flow, name in ends.items()} >= {
        ("exp", "ExpBackward0"),
        ("tanh", "TanhBackward0"),
    }
    counts = [
        p.track_event.counter_value for p in events if p.track_event.type == TrackEvent.TYPE_COUNTER
    ]
    assert counts == list(trace.analysis.memory.nbytes)
    for uuid in tracks:
        stamps = [p.timestamp for p in events if p.track_event.track_uuid == uuid]
        assert stamps == sorted(stamps)


def test_perfetto_bars_are_nested_and_flows_lead_forward_in_time(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            checkpoint(model, torch.randn(3, 4), use_reentrant=False).sum().backward()
            optimizer.step()
    trace.export(tmp_path / "x.pftrace")
    read = PerfettoTrace()
    read.ParseFromString((tmp_path / "x.pftrace").read_bytes())
    packets = [p for p in read.packet if p.HasField("track_event")]
    around = {}  # per track: start times of the open bars
    bars, begun, ended = Counter(), {}, Counter()
    for packet in packets:
        event, open_bars = packet.track_event, around.setdefault(packet.track_event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_bars.append(packet.timestamp)
            for flow in event.flow_ids:
                assert flow not in begun
                begun[flow] = packet.timestamp
        elif event.type == TrackEvent.TYPE_SLICE_END:
            assert open_bars.pop() <= packet.timestamp
            bars[event.track_uuid] += 1
    assert not any(around.values())
    for packet in packets:
        for flow in packet.track_event.terminating_flow_ids:
            ended[flow] += 1
            assert begun[flow] <= packet.timestamp
    assert set(ended.values()) == {1}
    assert len(ended) >= 9
    counter = [p for p in packets if p.track_event.type == TrackEvent.TYPE_COUNTER]
    stamps = [packet.timestamp for packet in counter]
    assert stamps == sorted(stamps)
    assert min(p.track_event.counter_value for p in counter) == 0
    assert max(p.track_event.counter_value for p in counter) == max(trace.analysis.memory.nbytes)
    assert bars.total() >= len(trace.analysis.ops)


def test_missing_perfetto_raises_with_the_package(trace, tmp_path, monkeypatch):
    for name in ("perfetto", "perfetto.trace_builder", "perfetto.trace_builder.proto_builder"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="pip install perfetto"):
        trace.export(tmp_path / "x.pftrace")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "format_name"), [("x.doc", None), ("x.dot", "doc"), ("x", None)])
def test_unknown_formats_are_refused(trace, tmp_path, name, format_name):
    with pytest.raises(UnknownFormatError):
        trace.export(tmp_path / name, format_name)
    assert list(tmp_path.iterdir()) == []


def write_foreign_file(path):
    """Write a file of another program at the path of an export."""
    if path.suffix == ".sqlite":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE autogradviz (a)")
    elif path.suffix == ".parquet":
        pd.DataFrame({"a": [1, 2]}).to_parquet(path)
    else:
        path.write_text('\n{"graphs": "digraph {} graphml"}')


@pytest.mark.parametrize("end", ["parquet", "sqlite", "pftrace", "json", "graphml", "dot"])
def test_export_replaces_only_an_older_export_of_its_kind(trace, tmp_path, end):
    path = tmp_path / f"x.{end}"
    path.touch()
    trace.export(path)  # over an empty file
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes())
    trace.export(path)
    assert path.stat().st_size == whole > 0
    path.unlink()
    write_foreign_file(path)
    before = path.read_bytes()
    with pytest.raises(OutputExistsError):
        trace.export(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_export_command_writes_files(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trace.save("x.agv")
    assert main(["export", "x.agv", "-f", "graphml"]) == 0
    assert main(["export", "x.agv", "-o", "y.sqlite"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.agv", "x.graphml", "y.sqlite"]
    before = (tmp_path / "y.sqlite").read_bytes()
    assert main(["export", "x.agv", "-f", "dot", "-o", "y.sqlite"]) == 2
    assert "y.sqlite exists already" in capsys.readouterr().err
    assert (tmp_path / "y.sqlite").read_bytes() == before
    assert main(["export", "x.agv", "-f", "dot", "-o", "y.sqlite", "--overwrite"]) == 0


def test_hostile_text_is_escaped(tmp_path):
    with autogradviz.record() as trace:
        namespace = {"torch": torch}
        source = "def f(x):\n    return x.exp()"
        exec(compile(source, "a\x01\x1b<script>&\"'\udc80.py", "exec"), namespace)
        namespace["f"](torch.ones(2, requires_grad=True)).sum().backward()
    for name in ("x.graphml", "x.json", "x.sqlite", "x.parquet", "x.gv", "x.pftrace"):
        trace.export(tmp_path / name)
    read = nx.read_graphml(tmp_path / "x.graphml")
    locations = {data.get("location", "") for _, data in read.nodes(data=True)}
    assert "a��<script>&\"'�.py:2" in locations
