"""Runs of two ranks: the ranks that differ, and the lines that made them differ."""

import base64
import json
import os
import signal
import subprocess
import sys
import zlib
from collections import Counter
from math import isnan
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from ranks import run_ranks
from step_peaks import peaks_of_steps

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.distributed_runs.scene import build_run_scene, read_totals
from autogradviz.distributed_runs.scene.schema import OTHER_COLLECTIVES, OTHER_OPS
from autogradviz.events import (
    CollectiveCalled,
    CollectiveWaited,
    OpCalled,
    RecordingInterrupted,
    StepEnded,
)

pytestmark = pytest.mark.one_in(3, reason="starts ranks", in_ci=1)

PROGRAM = Path(__file__).with_name("rank_programs_with_mistakes.py")
MISTAKES = (
    "correct", "branch", "not_finite", "missing", "mismatch", "drift", "skipped", "no_optimizer",
    "joined", "shorter", "sharded", "drift_zeroed",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(built, tmp_path_factory):
    """Return the runs of all mistakes, which two processes made one after the other."""
    folder = tmp_path_factory.mktemp("runs")
    env = {"AUTOGRADVIZ_CACHE": str(built)}
    ended = run_ranks(PROGRAM, folder, *MISTAKES, env=env)
    assert [rank.code for rank in ended] == [0, 0], "\n".join(rank.err for rank in ended)
    return {name: autogradviz.load(folder / name) for name in MISTAKES}


def found(run):
    """Return slug, ranks and culprit of each finding; times vary."""
    return [
        (each.finding.slug, each.ranks, each.finding.culprit and each.finding.culprit.text)
        for each in run.diagnose()
        if each.finding.slug != "rank-slow"
    ]


def test_correct_run_has_equal_ranks_and_no_findings(runs):
    run = runs["correct"]
    assert (run.ranks, run.world_size, run.groups) == ((0, 1), 2, ((0, 1),))
    assert [each for each in run.odd_ranks() if each.aspect != "time"] == []
    assert found(run) == []
    assert not run.compare(0, 1).differences or "norm" in repr(run.compare(0, 1))


def test_every_collective_is_recorded_before_its_op(runs):
    log = runs["correct"].trace(1).log
    calls = log.of(CollectiveCalled)
    ops = [op.seq for op in log.of(OpCalled) if op.op == "c10d.allreduce_.default"]
    assert [call.group_number for call in calls] == list(range(16))
    assert all(call.seq < op for call, op in zip(calls, ops, strict=True))
    assert len({call.group_name for call in calls}) == 1


@pytest.mark.parametrize("name", ["correct", "branch"])  # recorded by one engine each
def test_every_wait_is_recorded_with_its_collective(runs, name):
    log = runs[name].trace(1).log
    calls, waits = log.of(CollectiveCalled), log.of(CollectiveWaited)
    assert [wait.group_number for wait in waits] == [call.group_number for call in calls]
    assert {wait.group_name for wait in waits} == {call.group_name for call in calls}
    for call, wait in zip(calls, waits, strict=True):
        assert call.seq < wait.seq
        assert 0 < wait.duration_ns <= wait.time_ns - call.time_ns
    assert not any(wait.failed for wait in waits)


def test_digests_of_steps_are_those_of_their_ops(runs):
    steps = [
        [(step.step_ops, step.step_digest) for step in runs["branch"].trace(rank).log.of(StepEnded)]
        for rank in range(2)
    ]
    assert [first == second for first, second in zip(*steps, strict=True)] == [
        True, True, False, True,
    ]  # fmt: skip


def test_rank_that_takes_another_branch_is_named_with_the_line(runs):
    (odd,) = [each for each in runs["branch"].odd_ranks() if each.aspect != "time"]
    assert (odd.rank, odd.aspect, odd.step, odd.reference) == (1, "ops", 2, 0)
    line = "loss = loss + loss.abs()  # branch"
    assert found(runs["branch"]) == [("rank-diverged", (1,), line)]
    difference = runs["branch"].first_difference(1, 0)
    assert difference.is_extra
    assert difference.op.startswith("abs")


def test_first_rank_with_a_loss_that_is_not_finite_is_named(runs):
    slug, ranks, _ = found(runs["not_finite"])[0]
    assert (slug, ranks) == ("rank-not-finite-first", (1,))


def test_missing_collective_is_named_with_its_branch(runs):
    line = 'if what != "missing" or rank == 0 or number != 1:  # missing'
    assert found(runs["missing"])[0] == ("collective-missing", (1,), line)


def test_missing_collective_is_named_with_the_branch_of_an_earlier_step(runs):
    assert found(runs["skipped"])[0] == (
        "collective-missing", (1,), "if batch.sum() == 0:  # skipped",
    )  # fmt: skip


def test_ops_of_steps_without_an_optimizer_are_compared_where_their_digests_differ(runs):
    line = "value = value * 0.5  # scaled"
    assert found(runs["no_optimizer"]) == [("rank-diverged", (1,), line)]


def test_collectives_that_join_repeats_are_no_finding(runs):
    assert [each for each in runs["joined"].odd_ranks() if each.aspect == "ops"] == []
    assert found(runs["joined"]) == []


def test_rank_with_fewer_batches_is_named_with_its_loop(runs):
    line = "for _ in range(4 - rank):  # shorter"
    assert found(runs["shorter"]) == [("collective-missing", (1,), line)]


def test_ops_on_shards_are_not_compared_and_those_of_the_model_are(runs):
    (odd,) = [each for each in runs["sharded"].odd_ranks() if each.aspect == "ops"]
    assert (odd.rank, odd.step) == (1, 2)
    assert found(runs["sharded"]) == [("rank-diverged", (1,), "loss = loss.cos()  # sharded")]


def test_different_collectives_are_named_with_both_ranks(runs):
    slug, ranks, culprit = found(runs["mismatch"])[0]
    assert (slug, ranks) == ("collective-mismatch", (0, 1))
    assert culprit.endswith("# mismatch")


def test_replicas_with_other_parameters_at_equal_gradients_are_named(runs):
    assert found(runs["drift"]) == [("replicas-drifted", (1,), None)]


def test_replicas_that_drifted_are_named_although_their_gradients_were_cleared(runs):
    assert runs["drift_zeroed"].summaries[1].gradients is None
    assert found(runs["drift_zeroed"]) == [("replicas-drifted", (1,), None)]


def test_commands_take_the_folder_of_a_run(runs, capsys):
    folder = str(runs["branch"].folder)
    assert main(["show", folder]) == 0
    assert "rank 1: ops in step 2" in capsys.readouterr().out
    assert main(["diagnose", folder]) == 0
    assert "rank-diverged" in capsys.readouterr().out
    assert main(["compare", folder, "0", "1"]) == 0
    assert "abs" in capsys.readouterr().out
    assert main(["compare", folder, "0", "5"]) == 2


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """Return the folder of an exported run, and the number of events of its rank 1."""
    folder = tmp_path_factory.mktemp("exported") / "run.parquet"
    runs["correct"].export(folder)
    return folder, len(runs["correct"].trace(1).log)


def test_events_of_all_ranks_are_one_table(runs):
    run = runs["correct"]
    counts = {rank: len(run.trace(rank).log) for rank in run.ranks}
    table = run.dataset().to_table(columns=["rank", "kind"])
    assert Counter(table["rank"].to_pylist()) == counts
    only = run.dataset().count_rows(filter=ds.field("rank") == 1)
    assert only == counts[1]
    polars = pytest.importorskip("polars")
    whole = polars.scan_ipc(run.folder / "*.agv").select(polars.len()).collect().item()
    assert whole == sum(counts.values())


def test_events_of_a_torn_file_are_in_the_table_too(runs, tmp_path):
    for file in runs["correct"].folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    torn = tmp_path / "rank-00001.agv"
    torn.write_bytes(torn.read_bytes()[:-20_000])
    run = autogradviz.load(tmp_path)
    counts = Counter(run.dataset().to_table(columns=["rank"])["rank"].to_pylist())
    assert counts == {rank: len(run.trace(rank).log) for rank in (0, 1)}


def test_duckdb_reads_an_exported_run(exported):
    folder, events = exported
    query = f"select count(*) from '{folder}/*/*.parquet' where rank = 1"
    assert pytest.importorskip("duckdb").sql(query).fetchall() == [(events,)]


def test_polars_reads_an_exported_run(exported):
    folder, events = exported
    polars = pytest.importorskip("polars")
    rows = polars.scan_parquet(folder).filter(polars.col("rank") == 1)
    assert rows.select(polars.len()).collect(engine="streaming").item() == events


ALONE = """
import time, torch
model = torch.nn.Linear(2, 1)
model(torch.ones(1, 2)).sum().backward()
print("waits", flush=True)
time.sleep(60)
"""
WAITING = """
import os, sys, time, torch
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(3):
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("waits", flush=True), time.sleep(60)
"""


@pytest.mark.slow(reason="another interpreter that imports torch")
def test_a_program_that_is_ended_leaves_a_trace_without_ranks(tmp_path):
    script = tmp_path / "waiting.py"
    script.write_text(ALONE)
    command = [sys.executable, "-m", "autogradviz", "run", str(script)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGTERM)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert "SIGTERM; the trace is in" in printed
    trace = autogradviz.load(tmp_path / "waiting.agv")
    assert len(trace.analysis.graph.nodes)
    assert [each.reason for each in trace.log.of(RecordingInterrupted)] == ["SIGTERM"]


@pytest.mark.slow(reason="another interpreter that imports torch")
@pytest.mark.parametrize("options", [(), ("--all",), ("--hang", "0.5")])
def test_rank_that_is_ended_leaves_a_trace_with_the_line_where_it_stood(tmp_path, options):
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    env = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    command = [sys.executable, "-m", "autogradviz", "run", *options, "-o", "run/", str(script)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waits\n"
    if options == ("--hang", "0.5"):
        while "no event for 0.5 s" not in process.stderr.readline():
            pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    run = autogradviz.load(tmp_path / "run")
    interrupted = run.trace(1).log.of(RecordingInterrupted)
    assert interrupted[-1].reason == "SIGTERM"
    assert run.summaries[1].interrupted[1].text.endswith("time.sleep(60)")
    assert run.summaries[1].is_complete is (options != ("--all",))


def test_picture_of_a_run_marks_the_cells_that_differ(runs):
    scene = build_run_scene(runs["branch"])
    assert (scene.verdict, scene.steps) == ("1 equal, 1 odd", (0, 1, 2, 3))
    assert [each.rank for each in scene.ranks] == [1, 0]
    flags = [each & (OTHER_OPS | OTHER_COLLECTIVES) for each in scene.cells.state]
    assert flags == [0, 0, OTHER_OPS, 0, 0, 0, 0, 0]
    counts = [step.ops for rank in (1, 0) for step in runs["branch"].summaries[rank].steps]
    assert scene.cells.ops.tolist() == counts
    assert scene.cells.time_ms[0] == pytest.approx(
        runs["branch"].summaries[1].steps[0].ended_ns / 1e6
    )
    (difference,) = scene.differences
    at = runs["branch"].first_difference(1, 0).index
    assert (difference.rank, difference.reference, difference.index) == (1, 0, at)
    first = next(pair for pair in difference.rows if pair.own != pair.other)
    assert (first.own, first.other) == ("abs", "")
    assert [card.slug for card in scene.findings if card.slug != "rank-slow"] == ["rank-diverged"]


def test_picture_of_collectives_has_the_missing_ones_in_their_step(runs):
    (lanes,) = build_run_scene(runs["missing"]).lanes
    first, second = lanes.lanes
    assert (first.ranks, second.ranks) == ((0,), (1,))
    assert lanes.steps == (0,) * 4 + (1,) * 4 + (2,) * 4 + (3,) * 4 + (4,) * 4
    assert second.states[:8] == ("same",) * 4 + ("missing",) * 4
    assert set(second.states[8:16]) == {"shifted"}
    assert first.states[8:16] == ("same",) * 8
    assert second.numbers[8:12] == (4, 5, 6, 7)
    assert lanes.calls[first.calls[4]].text == "dist.all_reduce(parameter.grad)"
    (equal,) = build_run_scene(runs["correct"]).lanes
    assert [each.ranks for each in equal.lanes] == [(0, 1)]
    assert set(equal.lanes[0].states) == {"same"}


@pytest.mark.parametrize("name", MISTAKES)
def test_saved_bytes_of_each_step_are_the_peak_of_the_curve_of_memory(runs, name):
    run = runs[name]
    totals, scene = read_totals(run), build_run_scene(run, read_totals(run))
    assert totals.keys() == set(run.ranks)
    for rank, found in totals.items():
        trace = run.trace(rank)
        assert found.saved_nbytes == peaks_of_steps(trace.analysis)
        assert found.steps == tuple(each.step for each in trace.log.of(StepEnded))
        row = [each.rank for each in scene.ranks].index(rank) * len(scene.steps)
        cells = scene.cells.saved[row : row + len(found.steps)]
        assert tuple(None if isnan(each) else each for each in cells) == found.saved_nbytes


def test_report_of_a_run_holds_its_ranks_and_no_source_if_redacted(runs, tmp_path, capsys):
    report = tmp_path / "run.html"
    assert main(["html", str(runs["branch"].folder), "-o", str(report)]) == 0
    assert str(report) in capsys.readouterr().out
    page = report.read_text(encoding="utf-8")
    assert [f'data-rank="{rank}"' in page for rank in range(3)] == [True, True, False]
    runs["branch"].html(report, redact=True)
    payload = report.read_text(encoding="utf-8").partition('id="payload">')[2].partition("<")[0]
    text = zlib.decompress(base64.b64decode(payload)).decode()
    assert "rank-diverged" in text
    assert "loss.abs()" not in text
    assert str(PROGRAM.parent) not in text


def test_widget_of_a_run_opens_the_views_of_a_rank(runs):
    widget = runs["branch"].widget()
    assert json.loads(zlib.decompress(widget._run))["title"] == "branch/"
    widget._opening = {"rank": 1, "asked": 1}
    assert widget._opened == {"rank": 1, "asked": 1}
    assert json.loads(zlib.decompress(widget._payload))["nodes"]
    widget._opening = {"rank": 9, "asked": 2}
    assert "rank 9 has no trace" in widget._opened["error"]
