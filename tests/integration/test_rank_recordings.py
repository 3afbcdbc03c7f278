"""Recordings of several ranks: one file for each, and one report for all."""

import os

import pytest
from interpreters import run_new
from ranks import run_ranks

import autogradviz
from autogradviz.events import MeshSeen, ProcessGroupSeen, RankSeen
from autogradviz.recording.lifecycle import Recording
from autogradviz.recording_options import RecordingOptions

pytestmark = pytest.mark.one_in(4, reason="starts processes", in_ci=1)

TRAINS = """
import os, torch
x = torch.ones(3, requires_grad=True)
for _ in range(2):
    x.exp().sum().backward()
"""
FAILS = TRAINS + "raise ValueError(int(os.environ['RANK']))\n"
WARNS = """
import torch
net = torch.nn.Linear(3, 3)
torch.nn.Linear(3, 1)(net(torch.ones(2, 3)).detach()).sum().backward()
"""
JOINS = """
import os, sys, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = f"file://{sys.argv[1]}/store"
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
"""


def start(tmp_path, program, *options, world=2, env=None, arguments=()):
    """Run a program under ``autogradviz run`` as some ranks."""
    script = tmp_path / "train.py"
    script.write_text(program)
    words = ("-m", "autogradviz", "run", *options, script, *arguments)
    return run_ranks(*words, world=world, cwd=tmp_path, env=env)


def files(folder):
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))


@pytest.mark.parametrize(
    "world",
    [4, pytest.param(64, marks=pytest.mark.slow(reason="64 processes take two minutes"))],
)
def test_each_rank_has_its_own_file_with_all_steps(tmp_path, world):
    ended = start(tmp_path, TRAINS, "--all", world=world)
    assert [rank.code for rank in ended] == [0] * world, ended[0].err
    (folder,) = (each for each in tmp_path.iterdir() if each.is_dir())
    assert folder.name.startswith("train-")
    assert files(folder) == [f"rank-{rank:05}.agv" for rank in range(world)]
    for rank in range(world):
        trace = autogradviz.load(folder / f"rank-{rank:05}.agv")
        assert trace.log.problem is None
        (seen,) = trace.log.of(RankSeen)
        assert (seen.rank, seen.world_size, seen.local_rank) == (rank, world, rank)
    assert "torch was not used" not in "".join(rank.err for rank in ended)


def test_named_output_is_a_folder_also_if_all_ranks_fail_together(tmp_path):
    ended = start(tmp_path, FAILS, "-o", "step.agv", "-q")
    assert files(tmp_path / "step.agv") == ["rank-00000.agv", "rank-00001.agv"]
    for rank, each in enumerate(ended):
        assert each.code == 1
        assert f"ValueError: {rank}" in each.err
        assert "could not record" not in each.err
        assert f"step.agv/rank-0000{rank}.agv" in each.err


def test_output_that_a_rank_has_written_is_an_error_unless_it_may_be_replaced(tmp_path):
    start(tmp_path, TRAINS, "-o", "run/")
    again = start(tmp_path, TRAINS, "-o", "run/")
    assert [rank.code for rank in again] == [2, 2]
    assert "run/rank-00001.agv exists already" in again[1].err
    replaced = start(tmp_path, TRAINS, "-o", "run/", "--overwrite")
    assert [rank.code for rank in replaced] == [0, 0], replaced[0].err


@pytest.mark.ci(reason="starts several processes")
def test_restarted_run_writes_files_of_its_own(tmp_path):
    for count in ("0", "1"):
        start(tmp_path, TRAINS, "-o", "run/", env={"TORCHELASTIC_RESTART_COUNT": count})
    names = ["rank-00000.1.agv", "rank-00000.agv", "rank-00001.1.agv", "rank-00001.agv"]
    assert files(tmp_path / "run") == names


@pytest.mark.ci(reason="starts several processes")
def test_only_rank_0_prints_progress_and_the_file(tmp_path):
    first, second = start(tmp_path, TRAINS, "-o", "run/")
    assert "1 backward" in first.err
    assert "run/rank-00000.agv" in first.err
    assert second.err == ""
    assert len(list((tmp_path / "run").iterdir())) == 2  # nothing else is left


def test_finding_that_ranks_share_is_printed_once(tmp_path):
    ended = start(tmp_path, WARNS, "-o", "run/", world=4)
    printed = "".join(rank.err for rank in ended)
    assert printed.count("found on 4 of 4 ranks") == 1
    assert printed.count("[gradient-missing, hint]") == 1
    assert files(tmp_path / "run") == [f"rank-{rank:05}.agv" for rank in range(4)]


def test_finding_of_one_rank_is_printed_with_its_count(tmp_path):
    program = "import os\nif os.environ['RANK'] == '2':\n" + "".join(
        f"    {line}\n" for line in WARNS.strip().splitlines()
    )
    ended = start(tmp_path, program + "import torch\n", "-o", "run/", world=4)
    printed = "".join(rank.err for rank in ended)  # by rank 2, or by the last one to end
    assert printed.count("found on 1 of 4 ranks") == 1
    assert printed.count("[gradient-missing") == 1


def test_record_writes_one_file_for_each_rank_into_a_folder(tmp_path):
    program = (
        JOINS
        + "import autogradviz\nwith autogradviz.record(path='run/'):\n"
        + "    torch.ones(3, requires_grad=True).sum().backward()\n"
        + "dist.barrier()\ndist.destroy_process_group()\n"
    )
    (tmp_path / "script.py").write_text(program)
    ended = run_ranks("script.py", tmp_path, cwd=tmp_path)
    assert [rank.code for rank in ended] == [0, 0], ended[0].err
    for rank in range(2):
        log = autogradviz.load(tmp_path / "run" / f"rank-0000{rank}.agv").log
        (seen,) = log.of(RankSeen)
        assert (seen.rank, seen.world_size) == (rank, 2)
        groups = {group.group_description: group.group_ranks for group in log.of(ProcessGroupSeen)}
        assert groups["default_pg"] == (0, 1)
        assert groups["mesh_tp"] == (rank,)
        meshes = [(m.mesh_names, m.mesh_shape, m.mesh_coordinates) for m in log.of(MeshSeen)]
        assert (("dp", "tp"), (2, 1), (rank, 0)) in meshes


def test_process_without_a_launcher_is_rank_0_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with autogradviz.record(path="run/") as trace:
        pass
    assert files(tmp_path / "run") == ["rank-00000.agv"]
    assert trace.log.of(RankSeen) == ()


@pytest.mark.ci(reason="starts several processes")
def test_findings_of_an_earlier_run_of_the_same_name_are_not_read(tmp_path):
    env = {"TORCHELASTIC_RUN_ID": "job"}
    only_rank_0 = "import os\nif os.environ['RANK'] == '1':\n    os._exit(3)\n" + WARNS
    start(tmp_path, only_rank_0, "-o", "run/", env=env)  # leaves its finding: not all have reported
    left = tmp_path / "run" / ".findings-job-0"
    assert {file.name for file in left.iterdir()} >= {"0.json", "printing"}
    for file in left.iterdir():
        os.utime(file, (0, 0))
    ended = start(tmp_path, WARNS, "-o", "run/", "--overwrite", env=env)
    assert "".join(rank.err for rank in ended).count("found on 2 of 2 ranks") == 1


@pytest.mark.ci(reason="starts several processes")
def test_restart_that_torchrun_does_not_count_writes_files_of_its_own(tmp_path):
    for _ in range(2):  # on a host without a failure, the count stays 0
        ended = start(tmp_path, TRAINS, "-o", "run/", env={"TORCHELASTIC_RUN_ID": "job"})
        assert [rank.code for rank in ended] == [0, 0], ended[0].err
    names = ["rank-00000.1.agv", "rank-00000.agv", "rank-00001.1.agv", "rank-00001.agv"]
    assert files(tmp_path / "run") == names


def test_events_can_be_counted_by_another_thread_while_the_recording_ends(native):
    recording = Recording(RecordingOptions(engine="native"))
    recording.begin(0)
    recorder = recording._recorder
    assert recording._count_events() > 0
    recording.finish(None)
    recording._recorder = recorder  # which the other thread still sees
    assert recording._count_events() == 0


FAILS_ONCE = """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    raise SystemExit(3)
"""


@pytest.mark.slow(reason="torchrun imports torch in five interpreters")
def test_torchrun_records_all_ranks_also_after_it_restarts_them(tmp_path):
    (tmp_path / "train.py").write_text(TRAINS + FAILS_ONCE)
    done = run_new(
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
        "-m", "autogradviz", "run", "-o", "run/", "train.py",
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "_bootstrap_inner" not in done.stderr  # no thread of the recorder failed
    run = autogradviz.load(tmp_path / "run")
    assert (run.ranks, run.world_size) == ((0, 1), 2)
    assert {each.restart_count for each in run.summaries.values()} == {1}
    assert all(each.is_complete and each.error is None for each in run.summaries.values())
    failed = autogradviz.load(tmp_path / "run" / "rank-00001.agv")
    assert failed.log.problem is None
