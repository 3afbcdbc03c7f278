"""``autogradviz import-compile-trace``: read the logs that ``TORCH_TRACE`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.common_arguments import add_output
from autogradviz.cli.output_files import print_written
from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.event_log import save
from autogradviz.export.import_compile_trace import import_compile_trace

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder")
    add_output(parser, "the folder's name with .agv, in this directory")


def _import(options: argparse.Namespace) -> None:
    output: Path = options.output or Path(options.folder.resolve().name + ".agv")
    save(import_compile_trace(options.folder), output, overwrite=options.overwrite)
    print_written(output)


COMMAND: Final = Command(
    "import-compile-trace",
    _import,
    _arguments,
)
