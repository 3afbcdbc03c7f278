"""A stop under debugpy, the debugger of VS Code, with a client that speaks its protocol."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("debugpy")
pytestmark = pytest.mark.slow(reason="starts a debugger and its adapter")

SCRIPT = """
import torch
import autogradviz


def scale(y):
    for i in range(3):
        y.mul_(1.0)
    return y


with autogradviz.record(break_on="op:mul_#2"):
    scale(torch.ones(3, requires_grad=True).exp())
"""


class Client:
    """Sends requests of the Debug Adapter Protocol and reads the answers."""

    def __init__(self, port):
        for _ in range(300):
            try:
                self._socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        self._file = self._socket.makefile("rb")
        self._numbers = itertools.count(1)

    def send(self, command, **arguments):
        request = {"seq": next(self._numbers), "type": "request", "command": command}
        body = json.dumps({**request, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def wait(self, **wanted):
        while True:
            length = 0
            while (line := self._file.readline()) != b"\r\n":
                assert line, "the debugger has closed the connection"
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            message = json.loads(self._file.read(length))
            if wanted.items() <= message.items():
                return message.get("body", {})

    def ask(self, command, **arguments):
        self.send(command, **arguments)
        return self.wait(type="response", command=command)


@pytest.fixture
def client(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-Xfrozen_modules=off", "-m", "debugpy", "--wait-for-client"]
    process = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}", "train.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
    )
    try:
        yield Client(port)
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_debugger_stops_in_the_users_frame_with_the_live_tensors(client):
    client.ask("initialize", adapterID="python", linesStartAt1=True, pathFormat="path")
    client.send("attach", justMyCode=True)
    client.wait(type="event", event="initialized")
    client.send("configurationDone")
    thread = client.wait(type="event", event="stopped")["threadId"]
    frames = client.ask("stackTrace", threadId=thread)["stackFrames"]
    assert [each["name"] for each in frames] == ["scale", "<module>"]
    shown = {}
    for text in ("stopped.reason", "i, y._version", "stopped.args[0] is y"):
        answer = client.ask("evaluate", expression=text, frameId=frames[0]["id"], context="repl")
        shown[text] = answer["result"]
    assert shown == {
        "stopped.reason": "'aten.mul_.Tensor was called'",
        "i, y._version": "(1, 2)",
        "stopped.args[0] is y": "True",
    }
    client.send("continue", threadId=thread)
