"""``autogradviz plan``: the memory of a step that a script defines, without running it."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import read_bytes
from autogradviz.cli.script_function_argument import add_step, read_step, run_script, split_step
from autogradviz.cli.subcommand_and_exit_codes import NEGATIVE, Command
from autogradviz.errors import AutogradvizError
from autogradviz.render.terminal_text import as_text, render_summary
from autogradviz.scene import build_scene

if TYPE_CHECKING:
    import argparse


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_step(parser, "a function without arguments that runs a step; its script is planned too")
    parser.add_argument(
        "--numbers", type=float, metavar="N",
        help="what item(), float() and conditions read; by default, they are an error",
    )  # fmt: skip
    parser.add_argument(
        "--budget", metavar="BYTES",
        type=_budget,
        help=f"print what to checkpoint to fit into '24 GB'; exit code {NEGATIVE} if it does not",
    )  # fmt: skip
    parser.add_argument(
        "--measured-peak", metavar="BYTES",
        type=_budget,
        help="the peak of the step on the device, as its allocator reports it: '21.4 GB'; what it "
        "has more than the plan, which knows tensors only, is added to all peaks (with --budget)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the trace, .agv")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report of the step")


def _budget(text: str) -> int:
    try:
        return read_bytes(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _plan(options: argparse.Namespace) -> None:
    from autogradviz.planning.plan_step import plan

    if options.measured_peak is not None and options.budget is None:
        message = "--measured-peak is added to the predictions of --budget, which is missing"
        raise AutogradvizError(message)
    script, name = split_step(options.step)

    def step() -> tuple[Any, ...]:
        names = run_script(script)
        result = read_step(names, name, script)()
        return (*(result if isinstance(result, tuple) else (result,)), names)

    trace = plan(step, numbers=options.numbers)
    scene = build_scene(trace.analysis, trace.diagnose())
    summary = as_text(render_summary(scene, trace.analysis, with_next_call=False))
    sys.stdout.write(f"{summary}\n\n{trace.memory_by_kind()}\n")
    fit = None
    if options.budget is not None:
        fit = trace.fit(options.budget, measured_peak=options.measured_peak)
    if fit is not None:
        sys.stdout.write(f"\n{fit}\n")
    if options.output is not None:
        trace.save(options.output)
    if options.html is not None:
        trace.html(options.html)
    if fit is not None and not fit.fits:
        raise SystemExit(NEGATIVE)


COMMAND: Final = Command(
    "plan",
    _plan,
    _arguments,
)
