"""``autogradviz watch``: follow a recording in a browser while it is written."""

from __future__ import annotations

import sys
import threading
import webbrowser
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.errors import NotATraceError

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", type=Path, metavar="TRACE", help="the file of a recording; it need not exist yet"
    )
    parser.add_argument(
        "--port", type=_port, default=0, help="port of 127.0.0.1 (default: any free one)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, and open no browser"
    )


def _port(text: str) -> int:
    most = 65_535
    if not text.isdecimal() or int(text) > most:
        message = f"{text!r} is not a port, 0 to {most}"
        raise ArgumentTypeError(message)
    return int(text)


def _watch(options: argparse.Namespace) -> None:
    # Not when another command starts.
    from autogradviz.live.follow_growing_file import FollowedFile
    from autogradviz.live.serve_watched_file import serve

    path: Path = options.trace
    if path.is_dir():
        message = f"{path} is a folder; watch one of its files."
        raise NotATraceError(message)
    if path.exists():
        if not path.is_file():
            message = f"{path} is not a file."
            raise NotATraceError(message)
        next(FollowedFile(path).read(), None)  # raises if it is another file
    with serve(path, options.port) as server:
        sys.stdout.write(f"{server.url}\n")
        if not path.exists():
            sys.stdout.write(f"{path} does not exist yet; waiting for it.\n")
        sys.stdout.write("Press Ctrl-C to stop.\n")
        sys.stdout.flush()
        try:
            if not options.no_browser:
                webbrowser.open(server.url)
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stdout.write("\n")


COMMAND: Final = Command(
    "watch",
    _watch,
    _arguments,
)
