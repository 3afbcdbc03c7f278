"""Named queries, and the server that answers a language model's client."""

import json
import subprocess
import sys

import make_log as m
import pytest
from test_cli import run, save, save_failing

import autogradviz
from autogradviz import event_log
from autogradviz.cli.mcp import PROTOCOLS, answers
from autogradviz.cli.mcp_tools import MOST_CHARACTERS, MOST_ENTRIES, NAMES, Tools
from autogradviz.errors import AutogradvizError, UnknownTargetError
from autogradviz.events import GradAccumulated, OptimizerStepped
from autogradviz.sql_queries.named_queries import named_queries, query_of, run_query

# --- queries ----------------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path):
    return autogradviz.load(save_failing(tmp_path / "x.agv"))


def rows(log, name):
    columns, found = run_query(log, name)
    return [dict(zip(columns, row, strict=True)) for row in found]


def test_there_are_twenty_queries_and_each_runs_on_any_trace(tmp_path):
    pytest.importorskip("duckdb")
    assert len(named_queries()) == 20
    log = autogradviz.load(save(tmp_path / "x.agv")).log
    for query in named_queries():
        columns, _ = run_query(log, query.name)
        assert columns, query.name


def test_query_of_a_finding_has_a_row_about_one_of_its_events(failing):
    pytest.importorskip("duckdb")
    (finding,) = failing.diagnose()
    name = query_of(finding.events, failing.log)
    assert name == "unpacked-changed"
    assert {row["seq"] for row in rows(failing.log, name)} & set(finding.events)
    assert query_of((), failing.log) == ""


def test_write_to_a_saved_tensor_is_shown_with_both_lines(failing):
    pytest.importorskip("duckdb")
    (row,) = rows(failing.log, "writes-to-saved")
    wanted = ("line", "saved_at", "node_name", "slot", "saved_version", "seen_version")
    assert [row[name] for name in wanted] == [
        "train.py:5", "train.py:4", "ExpBackward0", "result", 0, 1,
    ]  # fmt: skip


def test_parameters_without_gradient_or_optimizer_are_listed():
    pytest.importorskip("duckdb")
    facts = [
        m.module(0, ""),
        *(m.parameter(n, name) for n, name in enumerate("abc")),
        m.node(1, "AccumulateGrad"),
        m.backward(),
        *(m.fact(GradAccumulated, backward_id=0, node_id=1, tensor_id=n) for n in (0, 1)),
        m.backward_ended(),
        m.fact(OptimizerStepped, optimizer_name="SGD", tensor_ids=(0, 2), gradient_count=1),
    ]
    log = m.make_log(facts)
    assert rows(log, "without-gradient") == [{"parameter": "c"}]
    assert rows(log, "without-optimizer") == [{"parameter": "b"}]


def test_select_reads_events_and_no_file(failing, tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    assert run_query(failing.log, "SELECT count(*) FROM ops")[1] == [(2,)]
    with pytest.raises(AutogradvizError, match="disabled"):
        run_query(failing.log, f"SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    with pytest.raises(UnknownTargetError, match="did you mean writes"):
        run_query(failing.log, "write")


def test_command_lists_prints_and_runs_queries(tmp_path, capsys):
    pytest.importorskip("duckdb")
    path = save_failing(tmp_path / "x.agv")
    assert run("sql") == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [query.name for query in named_queries()]
    assert run("sql", path, "writes", "--csv") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("seq,op_seq,line,op,")
    assert run("sql", path, "writes", "--print") == 0
    assert capsys.readouterr().out.startswith("SELECT write.seq")
    assert run("sql", path, "without-gradient") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no rows"
    assert run("sql", path) == 2


def test_missing_duckdb_is_an_error_that_names_the_package(failing, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(AutogradvizError, match="pip install duckdb"):
        run_query(failing.log, "writes")


# --- the server -------------------------------------------------------------------------------


@pytest.fixture
def tools(failing, tmp_path):
    return Tools(failing, failing, root=tmp_path)


CALLS = {
    "overview": {},
    "findings": {},
    "why": {"target": "error"},
    "audit": {},
    "node": {"node": "ExpBackward0"},
    "tensor": {"tensor_id": 1},
    "memory": {},
    "source": {"file": "train.py", "line": 5},
    "compare": {},
    "explain": {"name": "AGV101"},
}


def test_server_has_ten_tools_which_answer(tools):
    assert set(NAMES) == CALLS.keys()
    assert len(NAMES) == 10
    found = {name: tools.call(name, arguments) for name, arguments in CALLS.items()}
    assert "ExpBackward0.result was written" in found["findings"]
    assert '"query": "unpacked-changed"' in found["findings"]
    assert '"changed_version": 1' in found["node"]
    assert '"kind": "written"' in found["tensor"]
    assert "train.py:5" in found["why"]
    assert "32 B  train.py:4" in found["memory"]
    assert "1 × add_ in forward" in found["source"]
    assert found["explain"].startswith("A saved tensor was written")


def test_answers_are_bounded_and_say_what_is_left_out(tmp_path):
    many = [m.node(n, "ExpBackward0", nr=n) for n in range(1, 500)]
    event_log.save(m.make_log(m.began(), many, m.ended()), tmp_path / "x.agv")
    tools = Tools(autogradviz.load(tmp_path / "x.agv"), root=tmp_path)
    lines = tools.call("node", {"node": "ExpBackward0"}).splitlines()
    assert lines[0] == "499 nodes"
    assert len(lines) <= MOST_ENTRIES + 2
    assert lines[-1].endswith(f"first={len(lines) - 2} on")
    tools.overview = lambda: "x" * (MOST_CHARACTERS + 7)
    assert tools.call("overview", {}).endswith("\n… 7 more characters are left out")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("node", {"node": "NoBackward0"}),
        ("tensor", {"tensor_id": -1}),
        ("tensor", {"tensor_id": 10**9}),
        ("tensor", {"tensor_id": "1"}),
        ("why", {}),
        ("why", {"target": "error", "more": 1}),
        ("source", {"file": "/etc/passwd", "line": 1}),
        ("call", {}),
        ("__init__", {}),
    ],
)
def test_wrong_questions_are_answers_of_their_own(tools, name, arguments):
    request = {"id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    (answer,) = map(json.loads, answers([json.dumps(request)], tools))
    assert answer["result"]["isError"], answer


def test_messages_that_are_no_request_are_errors_and_notifications_have_no_answer(tools):
    lines = [
        "nonsense", "[]", "", '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        '{"id": 7, "method": "resources/list"}', '{"id": 8, "method": "ping"}',
    ]  # fmt: skip
    found = [json.loads(line) for line in answers(lines, tools)]
    assert [each.get("error", {}).get("code") for each in found] == [-32700, -32600, -32601, None]
    assert [each["id"] for each in found] == [None, None, 7, 8]


def test_session_over_standard_input_and_output(tmp_path):
    path = save_failing(tmp_path / "x.agv")
    messages = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": "c", "method": "tools/call", "params": {"name": "findings"}},
        {"id": 3, "method": "initialize", "params": {"protocolVersion": "1999-01-01"}},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "autogradviz", "mcp", path],
        input="".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages),
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    first, listed, called, newest = map(json.loads, done.stdout.splitlines())
    assert first["result"]["protocolVersion"] == "2025-06-18"
    assert newest["result"]["protocolVersion"] == PROTOCOLS[0]
    assert [tool["name"] for tool in listed["result"]["tools"]] == list(NAMES)
    assert all(tool["annotations"]["readOnlyHint"] for tool in listed["result"]["tools"])
    assert "AGV101" in called["result"]["content"][0]["text"]
    assert not called["result"]["isError"]
