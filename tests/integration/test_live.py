"""Recordings that are followed while they are written."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
import torch

import autogradviz
from autogradviz.errors import AutogradvizError, NotATraceError
from autogradviz.events import LossRead, OpCalled, StepEnded
from autogradviz.live.analyze_steps_while_recorded import RecordedSteps
from autogradviz.live.follow_growing_file import FollowedFile
from autogradviz.live.serve_watched_file import serve

pytestmark = pytest.mark.one_in(3, reason="follows processes", in_ci=1)

PROGRAM = """
import sys, torch, autogradviz

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    with autogradviz.record(model, path=sys.argv[1], engine="python"):
        for line in sys.stdin:
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            if line == "bug\\n":
                y = loss.exp()
                y.add_(1)
                y.backward()
            loss.backward()
            optimizer.step()
            print(loss.item(), *(p.grad.norm().item() for p in model.parameters()), flush=True)
except RuntimeError:
    print("raised", flush=True)
"""


class Requests:
    """Requests to a server, and what it answers."""

    def __init__(self, url):
        self.address = urlsplit(url)

    def get(self, path, **headers):
        connection = http.client.HTTPConnection(self.address.netloc, timeout=30)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
        return response.status, content

    def state(self, version=0):
        status, content = self.get(f"{self.address.path}state?version={version}")
        assert status == 200
        return json.loads(content)

    def wait_for(self, is_reached):
        deadline = time.monotonic() + 60
        while not is_reached(state := self.state()):
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        return state


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The states that a reader sees while another process writes, and what that process printed."""
    path = tmp_path_factory.mktemp("live") / "run.agv"
    states, printed = [], []
    with serve(path) as server:
        requests = Requests(server.url)
        states.append(requests.state())
        command = [sys.executable, "-c", PROGRAM, str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            for count in (1, 3):
                while len(printed) < count:
                    process.stdin.write("step\n")
                    process.stdin.flush()
                    printed.append([float(word) for word in process.stdout.readline().split()])
                    time.sleep(0.6)  # a small batch is written after a second
                states.append(
                    requests.wait_for(
                        lambda s, least=count - 1: len(s["steps"]) >= least and not s["unanalyzed"]
                    )
                )
            process.stdin.write("bug\n")
            process.stdin.close()
            assert process.stdout.read() == "raised\n"
        states.append(requests.wait_for(lambda s: s["ended"] and not s["unanalyzed"]))
        pages = {
            "page": requests.get(requests.address.path),
            "step": requests.get(f"{requests.address.path}step/2"),
            "no step": requests.get(f"{requests.address.path}step/99"),
            "wrong token": requests.get("/wrong/state"),
            "no token": requests.get("/"),
            "other host": requests.get(f"{requests.address.path}state", Host="example.org"),
        }
        newer = requests.state(version=states[-1]["version"])
    return path, states, printed, pages, newer


def test_reader_sees_each_step_with_the_values_of_the_program(written):
    _, (before, first, second, last), printed, _, newer = written
    assert not before["exists"]
    assert before["steps"] == []
    assert not first["ended"]
    assert len(first["steps"]) <= len(second["steps"]) <= len(printed)
    assert not second["ended"]
    *steps, unfinished = last["steps"]
    assert [step["losses"] for step in steps] == [[values[0]] for values in printed]
    norms = [step["norms"] for step in steps if step["norms"]]
    assert norms
    for step, (_, *expected) in zip(steps, printed, strict=True):
        if step["norms"]:
            found = sum(norm**2 for norm in step["norms"].values())
            assert found == pytest.approx(sum(norm**2 for norm in expected))
    assert unfinished["unfinished"]
    assert newer["steps"] == newer["findings"] == []


@pytest.mark.ci(reason="starts a process and waits for it")
def test_error_after_the_last_step_is_found(written):
    _, (*_, last), printed, _, _ = written
    [finding] = last["findings"]
    assert finding["slug"] == "saved-tensor-mutated"
    # The program has no file; from Python 3.13 on, linecache knows the text of -c.
    assert finding["text"] in ("", "y.add_(1)")
    assert finding["firstStep"] == len(printed)


def test_measures_equal_those_of_the_whole_recording(written):
    path, (*_, last), _, _, _ = written
    analysis = autogradviz.load(path).analysis
    ends = [event.end_seq for event in analysis.log.of(StepEnded)]
    first = [op for op in analysis.ops if op.seq < ends[0]]
    assert last["steps"][0]["ops"] == len(first)
    in_first = [n for seq, n in zip(analysis.memory.seqs, analysis.memory.nbytes, strict=True)
                if seq < ends[0]]  # fmt: skip
    assert last["steps"][0]["saved"] == max(in_first)


def test_server_answers_only_who_knows_the_address(written):
    pages = written[3]
    assert {name: status for name, (status, _) in pages.items()} == {
        "page": 200,
        "step": 200,
        "no step": 404,
        "wrong token": 403,
        "no token": 403,
        "other host": 403,
    }
    assert "run.agv, step 2" in pages["step"][1]
    assert "http://" not in pages["page"][1].replace("http://www.w3.org/2000/svg", "")


def test_taken_port_is_an_error(tmp_path):
    with (
        serve(tmp_path / "a.agv") as server,
        pytest.raises(AutogradvizError, match=f"port {server.server_port} of 127.0.0.1"),
        serve(tmp_path / "b.agv", server.server_port),
    ):
        pass


def test_other_files_are_refused_and_replaced_files_are_read_again(written, tmp_path):
    path = tmp_path / "other.agv"
    path.write_text("no trace")
    followed = FollowedFile(path)
    with pytest.raises(NotATraceError, match="is not an autogradviz trace"):
        list(followed.read())
    content = written[0].read_bytes()
    path.write_bytes(content.replace(b"format_version\0", b"format_newness\0"))
    with pytest.raises(NotATraceError):
        list(FollowedFile(path).read())
    # A file that grows by a few bytes at a time gives the same events.
    growing, steps = tmp_path / "growing.agv", RecordedSteps()
    followed = FollowedFile(growing)
    assert list(followed.read()) == []
    for end in (*range(0, len(content), len(content) // 7), len(content)):
        growing.write_bytes(content[:end])
        for batch in followed.read():
            steps.add(batch)
    assert steps.ended
    assert followed.ended
    assert len(steps.steps) == len(written[1][-1]["steps"])
    growing.write_bytes(content[: len(content) // 2])
    list(followed.read())
    assert followed.replacements == 1


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_live_widget_shows_the_steps_of_this_process(tmp_path, is_streamed):
    def made():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))

    expected = train(made(), 3)
    model = made()
    path = tmp_path / "live.agv" if is_streamed else None
    with autogradviz.record(model, path=path) as trace:
        widget = trace.live()
        found = train(model, 3)
    assert all(map(torch.equal, expected, found))
    deadline = time.monotonic() + 60
    while not widget._changes.get("ended") or widget._changes["unanalyzed"]:
        assert time.monotonic() < deadline, widget._changes
        time.sleep(0.05)
    changes = widget._changes
    assert changes["error"] == ""
    assert [step["step"] for step in changes["steps"]] == [0, 1, 2]
    losses = [read.loss for read in trace.log.of(LossRead)]
    assert [step["losses"] for step in changes["steps"]] == [[loss] for loss in losses]
    assert sum(step["ops"] for step in changes["steps"]) == len(trace.log.of(OpCalled))
    widget._wanted = {"step": 1, "count": 1}
    assert "step 1" in widget._opened["page"]
