"""``autogradviz svg``: draw the autograd graph of a trace, or one of its compiled regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.cli.common_arguments import add_output, add_redact, depth
from autogradviz.cli.incomplete_traces import has_graph
from autogradviz.cli.output_files import choose_output, print_written
from autogradviz.cli.subcommand_and_exit_codes import Command

if TYPE_CHECKING:
    import argparse

    from autogradviz.trace import Trace


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "the trace's name with .svg, in this directory")
    parser.add_argument("--depth", type=depth, metavar="N", help="open N levels of modules")
    parser.add_argument(
        "--engine", choices=("native", "dot"), default="native", help="dot needs Graphviz"
    )
    parser.add_argument(
        "--region",
        metavar="NAME",
        nargs="?",
        const="",
        help='draw a compiled region ("forward [0/1]"), by default the one that saves most',
    )
    parser.add_argument(
        "--detail", choices=("blocks", "lines"), help="columns of a compiled region"
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    add_redact(parser)


def _svg(trace: Trace, options: argparse.Namespace) -> None:
    if options.detail is not None and options.region is None:
        options.parser.error("--detail needs --region")
    output = choose_output(options, ".svg", () if options.region is not None else (".pdf",))
    if not has_graph(trace):
        return
    if options.region is not None:
        region = trace.compiled_graph(options.region or None, redact=options.redact)
        region.svg(output, detail=options.detail, theme=options.theme, overwrite=options.overwrite)
        print_written(output)
        return
    view = trace.graph(depth=options.depth, redact=options.redact)
    view.svg(output, engine=options.engine, theme=options.theme, overwrite=options.overwrite)
    print_written(output)


COMMAND: Final = Command(
    "svg",
    _svg,
    _arguments,
    reads="trace",
)
