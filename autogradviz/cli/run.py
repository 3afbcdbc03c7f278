"""``autogradviz run``: record a program that knows nothing of it."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.cli.argtypes import span, whole_number
from autogradviz.cli.output_path import Target
from autogradviz.cli.progress import Progress, say
from autogradviz.cli.run_script import (
    ImportHook,
    install_excepthook,
    is_success,
    outermost_frame,
    read_program,
    run_as_main,
)
from autogradviz.errors import AutogradvizError, FileExistsAlreadyError, ProgramNotFoundError
from autogradviz.event_log import check_not_exists
from autogradviz.record import record, set_outer_recording
from autogradviz.render.text import as_text, render_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.cli.run_script import Program
    from autogradviz.trace import Trace

FAILED: Final = 2
KEPT: Final = 3
"""Steps that are held when nothing else is asked for."""

_WITH_VALUE: Final = frozenset({"-o", "--output", "--keep-steps", "--steps", "--within"})
_USAGE: Final = "autogradviz run [options] (script.py | -m module) [arguments]"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Tell the command line of ``run``."""
    parser = commands.add_parser(
        "run",
        help="record a program, and say what went wrong in it (needs torch)",
        usage=_USAGE,
        description="Run a program as Python would, and record it. When it fails, or when "
        "something is found, its trace is written.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the trace here, whatever happens; never over another file",
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--keep-steps",
        type=whole_number,
        metavar="N",
        default=KEPT,
        help=f"hold the last N training steps (default: {KEPT})",
    )
    amount.add_argument(
        "--all", action="store_true", help="keep all steps, and write them while they are recorded"
    )
    amount.add_argument(
        "--steps",
        type=span,
        metavar="A:B",
        help="record steps A to B-1 only, counted from 0 by calls of optimizer.step()",
    )
    parser.add_argument(
        "--within",
        metavar="MODULE",
        help='write only what happened in modules of this name, as "h.*.attn"',
    )
    parser.add_argument(
        "--fingerprints", action="store_true", help="also compare the contents of tensors"
    )
    parser.add_argument("--values", action="store_true", help=argparse.SUPPRESS)  # deprecated
    parser.add_argument("--no-ops", action="store_true", help="graph and backward only; cheaper")
    parser.add_argument("--no-stacks", action="store_true", help="without lines; cheaper")
    parser.add_argument("-q", "--quiet", action="store_true", help="tell of failures only")
    parser.set_defaults(run=lambda _: parser.error("name a script, or -m and a module"))


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what is ours of a command line, and the program with all that follows it.

    The second is empty unless the command is ``run`` and a program is named.
    """
    words = list(words)
    if words[:1] != ["run"]:
        return words, []
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "--":
            return words[:place], words[place + 1 :]
        if words[place] == "-m":
            named = place + 1 < len(words)
            return (words[:place], words[place:]) if named else (words[:1], [])
        place += 2 if words[place] in _WITH_VALUE else 1
    return words[:place], words[place:]


def record_program(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a program and record it from where it imports torch; return the exit code.

    What the program raises is raised, and Python shows it as if nobody had been there.
    """
    if options.values:
        _complain(
            "--values is deprecated and will be removed in the next release; use --fingerprints"
        )
    program = read_program(words)
    session = _Session(options, program)
    try:
        session.check()
    except AutogradvizError as error:
        return _complain(str(error))
    try:
        run_as_main(program)
    except ProgramNotFoundError as error:
        session.waiting.remove()
        return _complain(str(error))
    except BaseException as error:
        session.close(error, failed=not is_success(error))
        if isinstance(error, SystemExit):  # Python shows nothing of it
            session.report()
        else:
            install_excepthook(error, session.report)
        raise
    session.close(None, failed=False)
    session.report()
    return 0


class _Session:
    """One program's recording: opened when torch is there, written where that is asked for."""

    def __init__(self, options: argparse.Namespace, program: Program) -> None:
        self._options = options
        self._process = os.getpid()
        self._lines: list[str] = []
        self._trace: Trace | None = None
        self._stepped = 0
        self._pacing = ExitStack()
        self._target = Target(options.output, program.stem)
        self._progress = Progress(quiet=options.quiet)
        self._recording = self._new_recording()
        self._others = 0  # recordings of the program's own
        self.waiting = ImportHook("torch", self._torch_is_there)

    def _new_recording(self) -> record:
        options = self._options
        at_the_end = options.steps or options.within
        return record(
            fingerprints=options.fingerprints or options.values,
            ops=not options.no_ops,
            stacks=not options.no_stacks,
            keep_steps=None if options.all or options.steps else options.keep_steps,
            path=self._target.path if options.all or not at_the_end else None,
        )

    def check(self) -> None:
        """Refuse what would fail only after hours; wait for torch.

        Raises:
            FileExistsAlreadyError: the trace would be written over another file.
        """
        check_not_exists(str(self._target))
        self.waiting.install()

    def _torch_is_there(self) -> None:
        if self._options.steps is None:
            self._open()
            return
        from autogradviz.recorder.retention.steps import hear_optimizers

        self._pacing.enter_context(hear_optimizers(self._count))
        if self._options.steps.start == 0:
            self._open()

    def _count(self) -> None:
        """Open or close the recording: an optimizer has stepped."""
        self._stepped += 1
        if os.getpid() != self._process:
            return
        if self._stepped == self._options.steps.start:
            self._open()
        elif self._stepped == self._options.steps.stop and self._trace is not None:
            self._finish(None)

    def _open(self) -> None:
        try:
            try:
                self._begin()
            except FileExistsAlreadyError:  # a process beside this one took the name
                if not self._target.rename():
                    raise
                self._recording = self._new_recording()
                self._begin()
        except AutogradvizError as error:  # the program goes on without being recorded
            _complain(str(error))
        except Exception as error:  # noqa: BLE001 - ours, and no reason for torch's import to fail
            _complain(f"nothing can be recorded: {type(error).__name__}: {error}")
        else:
            set_outer_recording(self)

    def _begin(self) -> None:
        self._trace = self._recording.begin(outermost_frame(), self._progress.step_ended)

    def suspend(self) -> None:
        """Close the recording: the program opens one of its own.

        Where it did so inside another dispatch mode, or in another thread, it cannot be closed.
        """
        if os.getpid() == self._process and self._recording.is_innermost:
            self._finish(None)

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Begin anew after the program's own recording; where that failed, it is the one to tell.

        What was written before stays: then nothing more is recorded.
        """
        if os.getpid() != self._process or self._recording.is_open:
            return
        self._others += trace is not None
        if error is not None:
            self._trace = trace
        elif not (self._options.all or self._recording.written or self._is_past_the_end()):
            self._recording = self._new_recording()
            self._open()

    def _is_past_the_end(self) -> bool:
        return self._options.steps is not None and self._stepped >= self._options.steps.stop

    def _finish(self, error: BaseException | None) -> None:
        """Close the recording, if it is open."""
        set_outer_recording(None)
        if not self._recording.is_open:
            return
        missed = self._recording.finish(error)
        if missed is not None and missed.summary is not None:
            self._lines.append(missed.summary.removeprefix("autogradviz "))

    def close(self, error: BaseException | None, *, failed: bool) -> None:
        """End the recording, write what is to be written, and note what to tell."""
        self.waiting.remove()
        self._pacing.close()
        self._progress.end()
        if os.getpid() != self._process:  # a forked child: the recording is its parent's
            return
        if self._trace is None:
            why = f"only {self._stepped} steps were made" if self._stepped else "torch was not used"
            self._lines.append(f"nothing was recorded: {why}")
            return
        if self._others:
            self._lines.append(
                f"stepped aside for recordings of the program's own ({self._others})"
            )
        told = None if isinstance(error, SystemExit) else error
        self._finish(told)
        found = self._trace.diagnose()
        if found and told is None:  # else the exception carries the first as its note
            self._lines.append(f"found\n{as_text(render_findings(found))}")
        elif len(found) > 1 or (found and sys.version_info < (3, 11)):
            rest = found if sys.version_info < (3, 11) else found[1:]
            self._lines.append(f"also found\n{as_text(render_findings(rest))}")
        asked = self._options.all or self._options.output is not None
        if failed or found or asked or self._recording.written:
            self._write(self._trace)

    def _write(self, trace: Trace) -> None:
        target = self._target
        try:
            if self._options.within is not None:
                trace = trace.within(self._options.within)
            if not (self._options.all or self._recording.written):
                target.write(trace)
            elif trace is not self._trace:
                trace.save(target.path)
            size = format_bytes(target.path.stat().st_size)
        except (OSError, AutogradvizError) as error:
            self._lines.append(f"the trace could not be written to {target}: {error}")
            return
        self._lines.append(f"{target} ({size}); look at it with: autogradviz html {target}")

    def report(self) -> None:
        """Say on standard error what became of it, once."""
        if os.getpid() == self._process:
            for line in self._lines:
                say(f"autogradviz: {line}\n")
            self._lines.clear()


def _complain(message: str) -> int:
    say(f"autogradviz: {' '.join(message.split())}\n")
    return FAILED
