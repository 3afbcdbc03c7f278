"""Ranks that are killed, aborted or interrupted at random moments leave traces with their lines."""

import os
import random
import signal
import time

import pytest
from interpreters import Forked

import autogradviz
from autogradviz.event_log import read_summary
from autogradviz.events import OpCalled, RecordingInterrupted, StackSeen

PROGRAM = """
import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import autogradviz

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/store", rank=rank, world_size=2,
    timeout=timedelta(seconds=60),
)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
keep_steps = 2 if sys.argv[2] == "last" else None
with autogradviz.record(path=f"{sys.argv[1]}/run/", keep_steps=keep_steps):
    for step in range(100_000):
        optimizer.zero_grad()
        net(torch.ones(2, 4)).square().mean().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == 0:
            print("trains", flush=True)
"""
MOMENTS = 20
FIRST, LAST = 17, 25  # lines of the recording
ENDINGS = ("kill", "abort", "terminate", "hang")
PATIENCE = 30


class Ranks:
    """Two ranks that train until a signal ends them."""

    def __init__(self, folder, kept):
        script = folder / "train.py"
        script.write_text(PROGRAM)
        self.processes = []
        self.errors = [folder / f"{rank}.err" for rank in range(2)]
        self.folder = folder / "run"
        for rank, path in enumerate(self.errors):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
            with path.open("w") as errors:
                process = Forked(
                    script, folder, kept, cwd=folder,
                    env={**os.environ, **variables}, stderr=errors.fileno(),
                )  # fmt: skip
            self.processes.append(process)

    def __enter__(self):
        for process in self.processes:
            assert process.stdout.readline() == "trains\n", self.errors[0].read_text()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.stdout.close()

    def send(self, rank, number):
        self.processes[rank].send_signal(number)

    def wait_for(self, rank, text):
        """Wait until a rank has printed a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.errors[rank].read_text():
            assert time.monotonic() < deadline, self.errors[rank].read_text()
            time.sleep(0.02)


def newest(folder, rank):
    """Return the trace of a rank, or else its last steps."""
    names = (f"rank-0000{rank}.agv", f"rank-0000{rank}.last.agv")
    return next(folder / name for name in names if (folder / name).exists())


def check_stands_in_loop(ranks, rank):
    """Check that the trace of a rank is readable, and names the line where it stood or raised."""
    path = newest(ranks.folder, rank)
    summary = read_summary(path)
    ended = summary.error or summary.interrupted
    assert ended is not None, ranks.errors[rank].read_text()
    assert FIRST <= ended[-1].lineno <= LAST
    assert ended[-1].filename.endswith("train.py")


def check_has_steps(ranks, rank):
    """Check that the trace of a rank that could write nothing at its end has its last steps."""
    trace = autogradviz.load(newest(ranks.folder, rank))
    assert trace.log.of(OpCalled)
    assert trace.log.of(StackSeen)
    assert read_summary(newest(ranks.folder, rank)).steps


@pytest.mark.slow(reason="20 pairs of processes")
def test_ranks_that_are_ended_at_random_moments_leave_readable_traces(native, tmp_path):
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    for moment in range(MOMENTS):
        folder = tmp_path / f"{moment}-{seed}"
        folder.mkdir()
        ending, victim = ENDINGS[moment % len(ENDINGS)], chance.randrange(2)
        other = 1 - victim
        with Ranks(folder, chance.choice(("all", "last"))) as ranks:
            time.sleep(chance.random() * 0.3)
            if ending in {"kill", "abort"}:
                ranks.send(victim, signal.SIGKILL if ending == "kill" else signal.SIGABRT)
                time.sleep(chance.random() * 0.1)  # the other may raise, or wait
                ranks.send(other, signal.SIGTERM)
                ranks.processes[other].wait(PATIENCE)
                check_has_steps(ranks, victim)
            else:
                if ending == "hang":
                    ranks.send(victim, signal.SIGSTOP)  # the other waits in C++
                    time.sleep(0.1)
                for rank in (other, victim):
                    ranks.send(rank, signal.SIGTERM)
                    ranks.send(rank, signal.SIGCONT)
                    ranks.processes[rank].wait(PATIENCE)
                check_stands_in_loop(ranks, victim)
            check_stands_in_loop(ranks, other)
            run = autogradviz.load(ranks.folder)
            assert run.ranks == (0, 1)
            assert run.summary()


@pytest.mark.slow(reason="two processes")
def test_interrupt_while_a_rank_waits_in_a_collective_writes_its_trace(native, tmp_path):
    with Ranks(tmp_path, "last") as ranks:
        ranks.send(1, signal.SIGSTOP)
        time.sleep(0.2)
        ranks.send(0, signal.SIGINT)
        ranks.wait_for(0, "SIGINT; the trace is in")
        check_stands_in_loop(ranks, 0)
        (interrupted,) = autogradviz.load(newest(ranks.folder, 0)).log.of(RecordingInterrupted)
        assert interrupted.reason == "SIGINT"
