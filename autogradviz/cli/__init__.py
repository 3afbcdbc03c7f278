"""The ``autogradviz`` command: one module for each subcommand."""

from autogradviz.cli.entry_point import main

__all__ = ["main"]
