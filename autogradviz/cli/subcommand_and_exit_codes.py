"""A subcommand: its name, arguments, example and function; and the exit codes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from autogradviz.cli.files_in_place_of_missing_one import files_in_place_of
from autogradviz.errors import AutogradvizError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping


# --- the exit codes of the command line; there are no others --------------------------------------
#
# ``autogradviz run`` exits as the program does, and with ``FAILED`` if it does not start.


NEGATIVE: Final = 1
"""The answer is no: a relation or ``--fail-on`` failed, or an error is not reproduced.

Or the answer is not whole, because the file of the trace is cut off.
"""

FAILED: Final = 2
"""The command failed: wrong arguments, an unreadable file, a missing package."""

INTERRUPTED: Final = 130
"""Ctrl-C, as in a shell."""

BROKEN_PIPE: Final = 141
"""The reader of the output closed it, as in a shell."""


# --- the commands, in the order of ``--help``, each with one line about it ------------------------


SUMMARIES: Final = {
    "demo": "train, record and break a small GPT (needs torch)",
    "run": "record a program, and print what went wrong in it (needs torch)",
    "export": "convert a trace to the format of another program",
    "import-compile-trace": "convert the logs that PyTorch wrote to the folder TORCH_TRACE to a "
    "trace",
    "compare": "print what changed between two traces, two ranks, or one process and a parallel "
    "run",
    "show": "print a summary of a trace",
    "diagnose": "print what went wrong, and the line that caused it",
    "audit": "list the lines that changed gradients or memory, and their effects",
    "why": "explain the state of a parameter, module or node: the way to the line that caused it",
    "check": "check whether the gradients of a training step are right",
    "plan": "print the memory of a training step without running it",
    "reproduce": "write a short program that raises the same exception, or has the same finding",
    "svg": "draw the autograd graph of a trace, or a compiled region",
    "html": "write an interactive report for a browser; it works offline",
    "watch": "follow a recording in a browser while it is written",
    "sql": "run a named query, or a SELECT, over the events of a trace (needs duckdb)",
    "mcp": "serve a trace to a language model's client, over standard input and output",
    "explain": "explain a finding or an error",
    "native": "build, check or remove the C++ extension that makes recording cheaper",
}


# --- one example of each command, which ends its help ---------------------------------------------


EXAMPLES: Final = {
    "demo": "autogradviz demo",
    "run": "autogradviz run train.py --lr 3e-4",
    "export": "autogradviz export step.agv -o step.parquet",
    "import-compile-trace": "autogradviz import-compile-trace logs/",
    "compare": "autogradviz compare before.agv after.agv",
    "show": "autogradviz show step.agv",
    "diagnose": "autogradviz diagnose step.agv",
    "audit": "autogradviz audit step.agv",
    "why": "autogradviz why step.agv 0.weight",
    "check": "autogradviz check train.py:step",
    "plan": "autogradviz plan train.py:step",
    "reproduce": "autogradviz reproduce step.agv",
    "svg": "autogradviz svg step.agv -o graph.svg",
    "html": "autogradviz html step.agv -o report.html",
    "watch": "autogradviz watch run.agv",
    "sql": 'autogradviz sql step.agv "SELECT op, count(*) FROM events GROUP BY op"',
    "mcp": "autogradviz mcp step.agv",
    "explain": "autogradviz explain graph-lost",
    "native": "autogradviz native status",
}


def describe_error(error: Exception) -> str:
    """Return the message of an error; of an error of the system, without its number."""
    if isinstance(error, ModuleNotFoundError) and not isinstance(error, AutogradvizError):
        return f"{error.name!r} is needed, and is not installed for {sys.executable}"
    if not isinstance(error, OSError) or isinstance(error, AutogradvizError):
        return str(error)
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}{files_in_place_of(error)}"


# --- A subcommand: its name, its arguments, and the function that runs it -------------------------


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


@dataclass(frozen=True)
class Command:
    """One subcommand; ``entry_point.load_command`` returns that of a name."""

    name: str
    run: Callable[..., None]
    """Gets the options; before them the trace or the run, if the command reads one."""
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    """Adds its own arguments to its parser."""
    reads: Literal["nothing", "trace", "trace or run"] = "nothing"
    """The kind of the argument TRACE, which is loaded before the command runs."""
    parser: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of its ``ArgumentParser``, such as ``epilog``."""

    def add_to(self, commands: argparse._SubParsersAction[Any]) -> None:
        """Add the command to the command line."""
        from autogradviz.cli.common_arguments import add_trace, add_trace_or_run

        summary = SUMMARIES[self.name]
        how = {"description": summary, **self.parser}
        parser = commands.add_parser(self.name, help=summary, **how)
        if self.reads != "nothing":
            (add_trace if self.reads == "trace" else add_trace_or_run)(parser)
        parser.set_defaults(run=self._run, parser=parser)
        self.arguments(parser)

    def _run(self, options: argparse.Namespace) -> None:
        if self.reads == "nothing":
            self.run(options)
            return
        from autogradviz.cli.incomplete_traces import warn_incomplete
        from autogradviz.distributed_runs.run import open_any as load_trace_or_run
        from autogradviz.trace import load

        found = (load if self.reads == "trace" else load_trace_or_run)(options.trace)
        warn_incomplete(found, options.trace, options)
        self.run(found, options)
