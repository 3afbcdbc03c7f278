"""``autogradviz diagnose``: print the findings of a trace."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import plural
from autogradviz.cli.subcommand_and_exit_codes import NEGATIVE, Command
from autogradviz.continuous_integration.accepted_findings import (
    describe_states,
    fails,
    read_baseline,
    report,
    write_baseline,
)
from autogradviz.continuous_integration.sarif import to_sarif
from autogradviz.diagnose.finding import CONFIDENCES
from autogradviz.distributed_runs import Run
from autogradviz.render.terminal_text import print_out, render_findings
from autogradviz.support.import_rich_keep_random_state import Text
from autogradviz.support.locks_gc_and_stderr import write_stderr

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import RenderableType

    from autogradviz.continuous_integration.accepted_findings import ReportedFinding
    from autogradviz.diagnose import Finding
    from autogradviz.trace import Trace


def _arguments(parser: argparse.ArgumentParser) -> None:
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print the findings as JSON")
    shape.add_argument("--sarif", action="store_true", help="print them as SARIF 2.1.0")
    text = f"exit code {NEGATIVE} if a new finding is at least so sure"
    parser.add_argument("--fail-on", choices=CONFIDENCES, help=text)
    text = "accept the findings in this file"
    parser.add_argument("--baseline", type=Path, metavar="FILE", help=text)
    text = "also write the findings to a baseline; an earlier one is replaced"
    parser.add_argument("--write-baseline", type=Path, metavar="FILE", help=text)
    text = "paths in SARIF and in baselines are relative to DIR (default: this directory)"
    parser.add_argument("--root", type=Path, default=Path(), metavar="DIR", help=text)


def _diagnose(found: Trace | Run, options: argparse.Namespace) -> None:
    root = options.root.resolve()
    accepted = read_baseline(options.baseline) if options.baseline else Counter()
    log = None if isinstance(found, Run) else found.log
    reported = report(_headed(found), accepted, root, log)
    if options.sarif:
        problem = log.problem if log is not None else None
        sys.stdout.write(json.dumps(to_sarif(reported, root, problem), indent=2) + "\n")
    elif options.json:
        sys.stdout.write(json.dumps([each.as_json(root) for each in reported], indent=2) + "\n")
    else:
        note = "" if isinstance(found, Run) else found.analysis.caught_backwards
        _print(reported, options, note)
    if options.write_baseline:
        path = options.write_baseline
        count = write_baseline(reported, path, root, overwrite=False)
        write_stderr(f"autogradviz: {path} accepts {count} finding{'s' * (count != 1)}\n")
    caught = sum(each.finding.caught and each.state == "new" for each in reported)
    if options.fail_on and caught:
        write_stderr(
            f"autogradviz: --fail-on does not count {plural(caught, 'finding')} about exceptions "
            "that the program caught\n"
        )
    if options.fail_on and fails(reported, options.fail_on):
        sys.stdout.flush()
        raise SystemExit(NEGATIVE)


def _headed(found: Trace | Run) -> list[tuple[str, Finding]]:
    if isinstance(found, Run):
        return [(each.heading, each.finding) for each in found.diagnose()]
    return [("", finding) for finding in found.diagnose()]


def _print(reported: Sequence[ReportedFinding], options: argparse.Namespace, note: str) -> None:
    parts: list[RenderableType] = []
    for each in reported:
        if each.heading:
            parts.append(Text(each.heading, style="dim"))
        if each.state == "baseline":
            parts.append(Text("in the baseline", style="dim"))
        parts.append(render_findings([each.finding]))
        if each.query:
            command = f"  autogradviz sql {options.trace} {each.query}\n"
            parts.append(Text(command, style="dim", no_wrap=True, overflow="ignore"))
    if not reported and getattr(options, "is_incomplete", False):
        parts.append(Text("No findings in what is left of the file."))
    elif not reported:
        parts.append(render_findings([], note))
    if counts := describe_states(reported):
        parts.append(Text(counts))
    print_out(*parts)


COMMAND: Final = Command(
    "diagnose",
    _diagnose,
    _arguments,
    reads="trace or run",
)
