"""A subcommand: its name, its arguments, and the function that runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from autogradviz.cli.common_arguments import add_trace, add_trace_or_run, warn_incomplete
from autogradviz.distributed_runs import load as load_trace_or_run
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


@dataclass(frozen=True)
class Command:
    """One subcommand; ``entry_point.COMMANDS`` is the table of them."""

    name: str
    help: str
    run: Callable[..., None]
    """Gets the options; before them the trace or the run, if the command reads one."""
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    """Adds its own arguments to its parser."""
    reads: Literal["nothing", "trace", "trace or run"] = "nothing"
    """The kind of the argument TRACE, which is loaded before the command runs."""
    parser: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of its ``ArgumentParser``, such as ``epilog``."""

    def add_to(self, commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Add the command to the command line."""
        how = {"description": self.help, **self.parser}
        parser = commands.add_parser(self.name, help=self.help, **how)
        if self.reads != "nothing":
            (add_trace if self.reads == "trace" else add_trace_or_run)(parser)
        parser.set_defaults(run=self._run, parser=parser)
        self.arguments(parser)

    def _run(self, options: argparse.Namespace) -> None:
        if self.reads == "nothing":
            self.run(options)
            return
        found = (load if self.reads == "trace" else load_trace_or_run)(options.trace)
        warn_incomplete(found, options.trace, options)
        self.run(found, options)
