"""Serve a page that follows a trace file which another process writes."""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from autogradviz.errors import AutogradvizError
from autogradviz.live.analyze_steps_while_recorded import RecordedSteps
from autogradviz.live.follow_growing_file import FollowedFile
from autogradviz.render.html_pages import render_html
from autogradviz.render.live_page_and_widget import render_live_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from autogradviz.scene import Scene


# The server listens on the loopback interface only. Every address begins with a random token, and
# the ``Host`` header must name the loopback interface, so that no page of another site and no other
# user of the machine can read the recording.


LOOPBACK: Final = "127.0.0.1"
POLL_S: Final = 0.5
"""Seconds between two readings of a file that does not grow."""


class WatchedFile:
    """The steps of a trace file; a thread reads and analyzes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = FollowedFile(path)
        self._steps = (0, RecordedSteps())  # generation, its steps
        self._error = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="autogradviz-watch", daemon=True)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Read the file while the context is open."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join(timeout=5)

    def state(self, generation: int, version: int) -> dict[str, Any]:
        """Return the changes since a version of a generation, as JSON-compatible values.

        A generation begins when another file takes the place of the one that was read, or when
        steps are counted again.
        """
        replacements, steps = self._steps
        current = (replacements << 20) + steps.generation
        return {
            "name": self.path.name,
            "generation": current,
            "exists": self._file.exists,
            "unread": self._file.unread,
            "error": self._error,
            "note": "",
            **steps.changes_after(version if generation == current else 0),
        }

    def scene_of(self, number: int) -> Scene | None:
        """Return the view model of a step, None if there is no such step."""
        return self._steps[1].scene_of(number, self.path.name)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                busy = self._advance()
            except (AutogradvizError, OSError) as error:
                self._error, busy = str(error), False
            except Exception as error:  # noqa: BLE001 - shown on the page
                self._error, busy = f"{type(error).__name__}: {error}", False
            if not busy:
                self._stopped.wait(POLL_S)

    def _advance(self) -> bool:
        """Read new batches, or analyze one step; return whether there may be more to do."""
        read = False
        for batch in self._file.read():
            if self._file.replacements != self._steps[0]:
                self._steps = (self._file.replacements, RecordedSteps())
            self._steps[1].add(batch)
            read = True
        self._error = ""
        return read or self._steps[1].analyze_next()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would share the port

    def __init__(self, port: int, watched: WatchedFile) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.watched = watched
        self.token = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "autogradviz"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer a request."""
        address = urlsplit(self.path)
        _, token, *rest = (*address.path.split("/"), "", "")[:4]
        hosts = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not known or self.headers.get("Host") not in hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "autogradviz watch: wrong address\n")
            return
        page, number = rest[0], rest[1]
        if page == "" and not number:
            self._send(HTTPStatus.OK, "text/html", render_live_page())
        elif page == "state":
            known_changes = parse_qs(address.query)
            generation, version = (
                _number(known_changes.get(name, ["0"])[0]) for name in ("generation", "version")
            )
            state = self.server.watched.state(generation, version)
            self._send(HTTPStatus.OK, "application/json", json.dumps(state))
        elif page == "step":
            scene = self.server.watched.scene_of(_number(number))
            if scene is None:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", "no such step\n")
            else:
                self._send(HTTPStatus.OK, "text/html", render_html(scene))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "no such page\n")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing: the terminal has the address only."""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else -1  # noqa: PLR2004


@contextmanager
def serve(path: Path, port: int = 0) -> Iterator[_Server]:
    """Follow a trace file and serve its steps while the context is open.

    Args:
        path: of the file, which need not exist yet.
        port: of the loopback interface, 0 for any free one.

    Raises:
        AutogradvizError: if the port is taken.
    """
    watched = WatchedFile(path)
    try:
        server = _Server(port, watched)
    except OSError as error:
        message = f"port {port} of {LOOPBACK} cannot be used: {error.strerror or error}"
        raise AutogradvizError(message) from error
    with server, watched.followed():
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(timeout=5)
