"""Command line interface."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

import autogradviz
from autogradviz._version import __version__
from autogradviz.analysis.formatting import format_bytes
from autogradviz.cli import compare, export, run
from autogradviz.cli.show import overview
from autogradviz.errors import AutogradvizError
from autogradviz.explain import overview as all_pages
from autogradviz.render.text import render_findings
from autogradviz.trace import load

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED: Final = 2
"""The exit code where a command could not do its work."""

UNREAD: Final = 1
"""The exit code where nobody reads what is printed; rich has it too."""

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code.

    Args:
        arguments: what stands behind the program's name; those of this process when left out.
    """
    own, program = run.split(sys.argv[1:] if arguments is None else arguments)
    if program:  # whose errors are its own, and pass through; so are its streams
        return run.record_program(_parser().parse_args(own), program)
    _spell_out_what_the_terminal_cannot_show()
    options = _parser().parse_args(own)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output, as head does, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _complain(f"{where}{error.strerror or error}")
    except (AutogradvizError, ImportError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="autogradviz", description=autogradviz.__doc__)
    version = f"autogradviz {__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train, record and break a small GPT (needs torch)")
    demo.add_argument("-o", "--output", type=Path, default=Path("demo-output"), metavar="FOLDER")
    demo.set_defaults(run=_demo)

    run.add_parser(commands)
    export.add_parser(commands)
    compare.add_parser(commands)

    show = commands.add_parser("show", help="say what a trace holds")
    show.set_defaults(run=_show)

    diagnose = commands.add_parser("diagnose", help="say what went wrong, and on which line")
    diagnose.add_argument("--json", action="store_true", help="findings as JSON, for programs")
    diagnose.set_defaults(run=_diagnose)

    svg = commands.add_parser("svg", help="draw the autograd graph of a trace")
    svg.add_argument("--depth", type=_level, metavar="N", help="levels of modules that are open")
    svg.add_argument("--engine", choices=("native", "dot"), default="native")
    svg.add_argument("--theme", choices=("light", "dark"), default="light")
    svg.set_defaults(run=_svg)

    html = commands.add_parser("html", help="write a report to explore in a browser, offline")
    html.set_defaults(run=_html)

    page = commands.add_parser("explain", help="say what a finding or an error means")
    page.add_argument(
        "slug", nargs="?", metavar="NAME", help="as in [graph-lost]; lists all if none"
    )
    page.set_defaults(run=_explain)

    for command in (svg, html):
        text = "leave source text and absolute paths out"
        command.add_argument("--redact", action="store_true", help=text)
    for command in (show, diagnose, svg, html):
        command.add_argument("trace", type=Path, metavar="x.agv", help="a trace, from trace.save()")
    for command, suffix in ((svg, "svg"), (html, "html")):
        text = f"where to write; x.{suffix} in this folder when left out"
        command.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    return parser


def _level(text: str) -> int:
    """Return how many levels are open."""
    if not text.isdecimal():
        message = f"{text!r} is not a whole number from 0"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _demo(options: argparse.Namespace) -> None:
    from autogradviz.demo.run import run_demo

    run_demo(options.output, Console())


def _show(options: argparse.Namespace) -> None:
    Console().print(overview(load(options.trace)))


def _diagnose(options: argparse.Namespace) -> None:
    trace = load(options.trace)
    if trace.log.problem is not None:
        sys.stderr.write(f"autogradviz: {options.trace}: {trace.log.problem}\n")
    if options.json:
        sys.stdout.write(json.dumps([asdict(finding) for finding in trace.diagnose()], indent=2))
        sys.stdout.write("\n")
    else:
        Console().print(render_findings(trace.diagnose()))


def _explain(options: argparse.Namespace) -> None:
    found = [str(autogradviz.explain(options.slug))] if options.slug else all_pages()
    sys.stdout.write("\n".join(found) + "\n")


def _svg(options: argparse.Namespace) -> None:
    target = _target(options, ".svg")
    view = load(options.trace).graph(depth=options.depth, redact=options.redact)
    view.svg(target, engine=options.engine, theme=options.theme)
    _emit(target)


def _html(options: argparse.Namespace) -> None:
    target = _target(options, ".html")
    load(options.trace).html(target, redact=options.redact)
    _emit(target)


def _target(options: argparse.Namespace, suffix: str) -> Path:
    """Return where to write, which is never the trace itself."""
    source: Path = options.trace
    target: Path = options.output or Path(source.stem + suffix)
    if target.exists() and source.exists() and target.samefile(source):
        message = f"{target} is the trace itself; name another file with -o"
        raise AutogradvizError(message)
    return target


def _emit(written: Path) -> None:
    sys.stdout.write(f"{written} ({format_bytes(written.stat().st_size)})\n")


def _complain(message: str) -> int:
    sys.stderr.write(f"autogradviz: {' '.join(message.split())}\n")
    return FAILED


def _spell_out_what_the_terminal_cannot_show() -> None:
    """Keep a terminal or a pipe that knows only ASCII from failing on other letters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
