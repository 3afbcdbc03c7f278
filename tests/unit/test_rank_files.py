"""The files of a run: the newest of each rank, and those of an earlier run in the same folder."""

import errno
import json
import os
import struct
import subprocess
import sys
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.cli.output_files import TraceFile
from autogradviz.distributed_runs.scene import build_run_scene, read_totals
from autogradviz.distributed_runs.scene import saved_bytes_and_gradient_norms as rank_totals
from autogradviz.errors import NotATraceError, OutputExistsError
from autogradviz.event_log import Log, StepTotals, read_summary
from autogradviz.event_log.rank_summary import read_footer
from autogradviz.events import RankSeen, RecordingEnded, RecordingStarted, StepEnded
from autogradviz.support.rank_and_trace_paths import Rank, current_rank
from autogradviz.trace import Trace

SECOND = 10**9


def write(folder, rank, *, start, run="job", host="one", restart=0, world=4, steps=1, ended=5):
    """Write the trace of a rank that records for ``ended`` seconds, with or without a step."""
    common = {"thread": 0, "stack_id": None}
    began = RecordingStarted(
        seq=0, time_ns=0, started_at_ns=start * SECOND, autogradviz_version="1",
        torch_version="2", python_version="3", model_name=None, options=(), **common,
    )  # fmt: skip
    own = RankSeen(
        seq=1, time_ns=0, rank=rank, world_size=world, local_rank=rank, host=host, pid=1,
        run_name=run, restart_count=restart, **common,
    )  # fmt: skip
    end = (
        StepEnded(
            seq=2, time_ns=ended * SECOND, step=0, end_seq=2, step_ops=1, step_digest=1, **common
        )
        if steps
        else RecordingEnded(seq=2, time_ns=ended * SECOND, event_count=2, recorder_ns=0, **common)
    )
    name = f"rank-{rank:05}{f'.{restart}' if restart else ''}.agv"
    Trace(Log.from_events([began, own, end])).save(folder / name)


def test_ranks_of_an_earlier_run_are_left_out(tmp_path):
    for rank in range(4):
        write(tmp_path, rank, start=10, run="first")
    for rank in range(2):
        (tmp_path / f"rank-{rank:05}.agv").unlink()
        write(tmp_path, rank, start=100, run="second", world=2)
    run = autogradviz.load(tmp_path)
    assert (run.ranks, run.world_size) == ((0, 1), 2)
    assert "ranks 2-3: of an earlier run" in run.summary()


def test_rank_whose_file_is_torn_before_its_first_events_is_not_of_an_earlier_run(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, start=10, world=2)
    path = tmp_path / "rank-00001.agv"
    content, message = path.read_bytes(), b"\xff" * 4
    first_batch = content.index(message, content.index(message) + len(message))
    path.write_bytes(content[: first_batch + 100])  # the schema, and a part of a batch
    run = autogradviz.load(tmp_path)
    assert run.ranks == (0, 1)
    assert "left out" not in run.summary()
    assert run.diagnose() == []


def test_ranks_of_one_run_that_have_other_names_stay(tmp_path):
    write(tmp_path, 0, start=10, run="launcher-1", host="one")
    write(tmp_path, 1, start=12, run="launcher-2", host="two")
    assert autogradviz.load(tmp_path).ranks == (0, 1)


def test_rank_without_a_file_after_a_restart_of_its_host_is_missing(tmp_path):
    for rank, host in enumerate(("one", "one", "two", "two")):
        write(tmp_path, rank, start=10, host=host)
    write(tmp_path, 0, start=100, host="one", restart=1)
    for rank in (2, 3):  # torchrun counts no restart on the other host, whose files are new
        (tmp_path / f"rank-{rank:05}.agv").unlink()
        write(tmp_path, rank, start=101, host="two")
    run = autogradviz.load(tmp_path)
    assert run.ranks == (0, 2, 3)
    assert "rank 1 wrote no trace" in run.summary()


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"TORCHELASTIC_RUN_ID": "job/7"}, "job-7"),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}, "12-0"),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, "node1-29500"),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "1"}, "node1-29500"),
    ],
)
def test_ranks_on_several_hosts_have_one_name_for_their_run(monkeypatch, variables, name):
    for key, value in {"RANK": "1", "WORLD_SIZE": "2", **variables}.items():
        monkeypatch.setenv(key, value)
    assert current_rank().run_name == name


def test_ranks_that_shell_scripts_start_have_one_name_for_their_run(monkeypatch):
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    variables["TORCHELASTIC_ERROR_FILE"] = "/tmp/torchelastic_x/none_abc/attempt_1/1/error.json"
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    assert current_rank().run_name == "none_abc"


def test_rank_that_ends_no_step_is_not_of_an_earlier_run(tmp_path):
    """The other rank is known to be a rank of the run only because they overlap."""
    write(tmp_path, 0, start=10, run="4711", steps=0, ended=8)
    write(tmp_path, 1, start=12, run="4712")
    assert autogradviz.load(tmp_path).ranks == (0, 1)


def test_last_steps_of_a_killed_rank_are_deleted_only_if_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 0, start=10)
    left = tmp_path / "rank-00000.last.agv"
    (tmp_path / "rank-00000.agv").rename(left)
    assert autogradviz.load(tmp_path).ranks == (0,)
    rank = Rank(rank=0, world_size=2, local_rank=0, restart_count=0, run_name="job")
    with pytest.raises(OutputExistsError, match="rank-00000.last.agv"):
        TraceFile(str(tmp_path), "train", overwrite=False, rank=rank).check()
    allowed = TraceFile(str(tmp_path), "train", overwrite=True, rank=rank)
    allowed.check()
    assert left.exists()
    allowed.delete_old()
    assert not left.exists()


def test_importing_arrow_starts_no_thread():
    code = (
        "import os; count = lambda: len(os.listdir('/proc/self/task')); before = count()\n"
        "import autogradviz.event_log, sys; assert 'pyarrow' in sys.modules\n"
        "print(count() - before, os.environ.get('JE_ARROW_MALLOC_CONF'))"
    )
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "None"]


def test_file_of_the_last_steps_is_not_the_whole_recording(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, start=10, steps=0, world=2)
    (tmp_path / "rank-00001.agv").rename(tmp_path / "rank-00001.last.agv")
    run = autogradviz.load(tmp_path)
    assert [run.summaries[rank].is_complete for rank in range(2)] == [True, False]
    assert "stopped without an end" in run.summary()


def test_picture_states_of_how_many_ranks_the_totals_are_known(tmp_path, monkeypatch):
    for rank in range(3):
        write(tmp_path, rank, start=10, world=3)
    path = tmp_path / "rank-00001.agv"
    path.write_bytes(path.read_bytes()[:-16])  # a torn file has no summary
    run = autogradviz.load(tmp_path)
    assert [run.summaries[rank].totals is None for rank in range(3)] == [False, True, False]
    assert read_totals(run).keys() == {0, 1, 2}
    assert build_run_scene(run, read_totals(run)).notices == ()
    monkeypatch.setattr(rank_totals, "MOST_BYTES_READ", 100)
    assert read_totals(run).keys() == {0, 2}
    text = (
        "saved bytes and gradient norms are those of 2 of 3 ranks: "
        "the recordings of the others are too large to be read"
    )
    assert build_run_scene(run, read_totals(run)).notices == (text,)


def test_summary_without_totals_of_an_older_version_is_read(tmp_path):
    write(tmp_path, 0, start=10)
    path = tmp_path / "rank-00000.agv"
    summary = read_summary(path)
    assert summary.totals == StepTotals((0,), (None,), (None,))
    older = {name: value for name, value in asdict(summary).items() if name != "totals"}
    content = zlib.compress(json.dumps(older).encode())
    path.write_bytes(content + struct.pack("<Q8s", len(content), b"AGVRANK2"))
    assert read_footer(path) == replace(summary, totals=None)
    path.write_bytes(content + struct.pack("<Q8s", len(content), b"AGVRANK1"))
    assert read_footer(path) is None  # its steps are what the recorder ended
    content = zlib.compress(json.dumps({**older, "totals": [[0], [1, 2], [None]]}).encode())
    path.write_bytes(content + struct.pack("<Q8s", len(content), b"AGVRANK2"))
    assert read_footer(path) is None


def damage_empty(path):
    path.write_bytes(b"")


def damage_text(path):
    path.write_text("loss 0.1\n")


def damage_schema(path):
    path.write_bytes(path.read_bytes()[:100])


def damage_beginning(path):
    content = bytearray(path.read_bytes())
    content[40:400] = bytes(360)
    path.write_bytes(content)  # the summary at the end is intact


def damage_folder(path):
    path.unlink()
    path.mkdir()


def damage_pipe(path):
    path.unlink()
    os.mkfifo(path)


def damage_link(path):
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


WRITERS = "Traces are written by trace.save() and autogradviz run."
NO_TRACE = f"rank-00001.agv is not an autogradviz trace. {WRITERS}"
DAMAGED = NO_TRACE.replace(" trace.", " trace, or its beginning is damaged.", 1)
DAMAGES = {
    damage_empty: f"rank-00001.agv is empty. {WRITERS}",
    damage_text: NO_TRACE,
    damage_schema: DAMAGED,
    damage_beginning: DAMAGED,
    damage_folder: "rank-00001.agv is not a file.",
    damage_pipe: "rank-00001.agv is not a file.",
    damage_link: "rank-00001.agv: No such file or directory",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_file_that_cannot_be_read_leaves_out_only_its_rank(damage, tmp_path, capsys):
    for rank in range(3):
        write(tmp_path, rank, start=10, world=4)
    damage(tmp_path / "rank-00001.agv")
    run = autogradviz.load(tmp_path)
    line = f"rank 1 is left out: {DAMAGES[damage]}"
    assert [(file.rank, file.reason) for file in run.unreadable] == [(1, DAMAGES[damage])]
    assert (run.ranks, run.world_size, run.diagnose()) == ((0, 2), 4, [])
    summary = " ".join(run.summary().split())
    assert f"unreadable {line} missing rank 3 wrote no trace" in summary
    assert build_run_scene(run).notices[:2] == (line, "rank 3 wrote no recording")
    for redact in (False, True):
        page = tmp_path / f"report-{redact}.html"
        run.html(page, redact=redact)
        assert page.stat().st_size
    for command in (["diagnose"], ["html", "-o", str(tmp_path / "run.html")]):
        assert main([command[0], str(tmp_path), *command[1:]]) == 0
        assert capsys.readouterr().err == f"autogradviz: {tmp_path}: {line}\n"


def test_last_steps_of_a_rank_are_read_if_its_trace_cannot_be_read(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, start=10, world=2)
    (tmp_path / "rank-00001.agv").rename(tmp_path / "rank-00001.last.agv")
    (tmp_path / "rank-00001.agv").write_bytes(b"")
    run = autogradviz.load(tmp_path)
    assert run.files[1].path.name == "rank-00001.last.agv"
    line = "rank 1 is read from rank-00001.last.agv: rank-00001.agv is empty."
    assert line in " ".join(run.summary().split())


def test_file_without_permission_is_left_out(tmp_path, monkeypatch):
    for rank in range(2):
        write(tmp_path, rank, start=10, world=2)
    opened = Path.open

    def deny(path, *arguments, **named):
        if path.name == "rank-00000.agv":  # root may read every file
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", deny)
    run = autogradviz.load(tmp_path)
    assert run.ranks == (1,)
    assert [file.reason for file in run.unreadable] == ["rank-00000.agv: Permission denied"]


def test_many_files_that_cannot_be_read_are_counted(tmp_path, capsys):
    write(tmp_path, 0, start=10, world=40)
    for rank in range(1, 40):
        (tmp_path / f"rank-{rank:05}.agv").write_bytes(b"")
    run = autogradviz.load(tmp_path)
    assert "27 others" in run.summary()
    assert build_run_scene(run).notices[3] == "36 other files cannot be read"
    assert main(["diagnose", str(tmp_path)]) == 0
    assert capsys.readouterr().err.splitlines()[-1].endswith(": 31 other files cannot be read")


def test_folder_in_which_no_file_can_be_read_is_not_a_run(tmp_path, capsys):
    for rank in range(2):
        (tmp_path / f"rank-{rank:05}.agv").write_bytes(b"")
    with pytest.raises(NotATraceError, match="trace of a rank. rank-00000.agv is empty"):
        autogradviz.load(tmp_path)
    assert main(["show", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
