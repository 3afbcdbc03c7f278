"""``autogradviz export``: convert a trace to the format of another program."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.common_arguments import add_output, add_redact
from autogradviz.cli.output_files import print_written
from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.distributed_runs import Run
from autogradviz.errors import AutogradvizError
from autogradviz.export import all_formats, describe_formats

if TYPE_CHECKING:
    from autogradviz.trace import Trace

_FORMATS: Final = "{formats}"


class _HelpWithFormats(argparse.RawDescriptionHelpFormatter):
    """Lists the formats, those of plug-ins too, which are loaded only then."""

    def add_text(self, text: str | None) -> None:
        if text is not None and _FORMATS in text:
            formats = "\n  ".join(["formats:", *describe_formats(all_formats())])
            text = text.replace(_FORMATS, formats)
        super().add_text(text)


def _format(name: str) -> str:
    """Return the name of a format, as a type of argparse."""
    if name not in all_formats():
        message = f"invalid choice: {name!r} (choose from {', '.join(map(repr, all_formats()))})"
        raise argparse.ArgumentTypeError(message)
    return name


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = "by default the suffix of FILE selects it"
    parser.add_argument("-f", "--format", type=_format, help=text)
    add_output(parser, "the trace's name with the suffix of the format, in this directory")
    add_redact(parser)


def _export(found: Trace | Run, options: argparse.Namespace) -> None:
    if options.output is None and options.format is None:
        options.parser.error("name a format with -f, or a file with -o")
    output: Path | None = options.output
    if output is None:
        output = Path(options.trace.stem + all_formats()[options.format].suffixes[0])
    if isinstance(found, Run):
        if output.suffix != ".parquet" or options.redact:
            message = "a run is exported as Parquet, without --redact: -o run.parquet"
            raise AutogradvizError(message)
        found.export(output, overwrite=options.overwrite)
        sys.stdout.write(f"{output} ({len(found.ranks):,} folders)\n")
        return
    found.export(output, options.format, redact=options.redact, overwrite=options.overwrite)
    print_written(output)


COMMAND: Final = Command(
    "export",
    _export,
    _arguments,
    reads="trace or run",
    parser={"epilog": _FORMATS, "formatter_class": _HelpWithFormats},
)
