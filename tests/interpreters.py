"""Python programs in separate processes: new interpreters, and faster forked interpreters.

A new interpreter takes two seconds of CPU time to import PyTorch; a child of ``fork_server.py``
has already imported it. Tests of import order, hash seeds or interpreter options need a new
interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

import fork_server

SECONDS = 300

_sending = threading.Lock()


def run_new(*arguments, cwd=None, env=None, timeout=SECONDS):
    """Run ``python <arguments>`` in a new interpreter; return the completed process."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def run_forked(*arguments, cwd=None, env=None, timeout=SECONDS):
    """Run ``python <arguments>`` in a forked interpreter; return the completed process."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = Forked(*arguments, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = child.wait(timeout)
        finally:
            child.kill()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(arguments, code, *texts)


class Forked:
    """A running ``python <arguments>``, forked from an interpreter that has imported PyTorch.

    Args:
        arguments: a script, or ``-c`` and code, or ``-m`` and a module; then its own.
        cwd: its folder; that of this process by default.
        env: its environment; that of this process by default.
        stdout: a file descriptor; a pipe by default, whose other end is ``stdout``.
        stderr: a file descriptor; that of this process by default.
    """

    def __init__(self, *arguments, cwd=None, env=None, stdout=None, stderr=2):
        environment = dict(os.environ if env is None else env)
        if _settings(environment) != _settings(os.environ):
            message = "a forked interpreter has the PYTHON... variables of this process"
            raise ValueError(message)
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(Path.cwd() if cwd is None else cwd),
            "environment": environment,
        }
        content = json.dumps(request).encode()
        status, status_end = os.pipe()
        closed = [status_end, os.open(os.devnull, os.O_RDONLY)]
        self.stdout = None
        if stdout is None:
            read, stdout = os.pipe()
            self.stdout = os.fdopen(read)
            closed.append(stdout)
        header = len(content).to_bytes(fork_server.HEADER, "big")
        with _sending:  # requests of two threads do not mix
            connection = _server()
            socket.send_fds(connection, [header], [closed[1], stdout, stderr, status_end])
            connection.sendall(content)
        for descriptor in closed:
            os.close(descriptor)
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())
        self.returncode = None

    def wait(self, timeout=SECONDS):
        """Return the exit code: negative after a signal, as that of ``subprocess``."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number):
        """Send a signal, unless the process is known to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        """End the process, if it still runs, and wait for it."""
        self.send_signal(signal.SIGKILL)
        self.wait()


def _settings(environment):
    """Return the environment variables that Python reads at its start."""
    names = environment.keys() - {"PYTHONPATH"}
    return {name: environment[name] for name in names if name.startswith("PYTHON")}


@cache
def _server():
    """Return the connection to the server of this process."""
    connection, server_end = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, fork_server.__file__, str(server_end.fileno())],
        pass_fds=[server_end.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    server_end.close()

    def stop():
        connection.close()
        process.wait()

    atexit.register(stop)
    return connection
