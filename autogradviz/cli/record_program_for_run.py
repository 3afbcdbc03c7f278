"""The recording of a program under ``autogradviz run``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes, plural, short_location
from autogradviz.causes.choose_findings_among_facts import (
    count_lines_to_look_at,
    unchecked_backwards,
)
from autogradviz.cli.call_after_import import ImportHook
from autogradviz.cli.output_files import TraceFile
from autogradviz.cli.progress import Progress, count_calls
from autogradviz.cli.run_as_main import has_started
from autogradviz.cli.script_function_argument import describe_missing_package, module_of_script
from autogradviz.cli.traceback_of_program import outermost_frame
from autogradviz.continuous_integration.accepted_findings import describe_allowed
from autogradviz.diagnose.finding_text import join_names
from autogradviz.distributed_runs.exchange_findings import RankReport
from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import TrainingSteps, matches_module
from autogradviz.event_log.training_steps import count_optimizer_calls, last_part
from autogradviz.events import BackwardStarted, NodeSeen, OpCalled
from autogradviz.recording.record_between_callbacks import OpenEndedRecording
from autogradviz.recording_options import RecordingOptions
from autogradviz.render.terminal_text import as_text, render_findings
from autogradviz.support.locks_gc_and_stderr import print_line, write_stderr
from autogradviz.support.rank_and_trace_paths import current_rank
from autogradviz.trace import load

if TYPE_CHECKING:
    import argparse

    from autogradviz.analysis import SourceLocation
    from autogradviz.breakpoints.stop_condition import StopCondition
    from autogradviz.cli.run_as_main import Program
    from autogradviz.diagnose import Finding
    from autogradviz.support.rank_and_trace_paths import Rank
    from autogradviz.trace import Trace


def print_error(message: str) -> None:
    """Print an error as one line on standard error."""
    write_stderr(f"autogradviz: {' '.join(message.split())}\n")


class ProgramRecording(OpenEndedRecording):
    """Begins when the program imports torch, and writes the trace when the program ends."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        program: Program,
        break_on: tuple[StopCondition, ...] = (),
        unread: tuple[str, ...] = (),
    ) -> None:
        """Take the options, and the program with those of its arguments that it does not read."""
        self._arguments = arguments
        self._name = program.name
        self._messages: list[str] = []
        if unread:
            self._messages.append(
                f"{' '.join(unread)} went to {program.name}; options of "
                "autogradviz run come before the script"
            )
        self._has_failed = False  # to begin, which was printed
        self._steps = 0  # counted only with --steps
        self._step_counter = ExitStack()
        rank = current_rank()
        self._rank = rank if rank is not None and rank.world_size > 1 else None
        self._file = TraceFile(
            arguments.output,
            program.stem,
            overwrite=arguments.overwrite,
            replace=not break_on,  # whose condition may come from that trace
            rank=self._rank,
            script=Path(program.name).absolute() if Path(program.name).is_file() else None,
        )
        if (kept := self._file.kept) is not None:
            self._messages.append(f"{kept.name} is the trace of another script, and is kept")
        self._rank_report = (
            None if self._rank is None else RankReport(self._file.path.parent, self._rank)
        )
        is_first = self._rank is None or self._rank.rank == 0
        self._progress = Progress(quiet=arguments.quiet or bool(break_on) or not is_first)
        writes_at_end = not arguments.all and (arguments.steps or arguments.within)
        options = RecordingOptions(
            fingerprints=arguments.fingerprints,
            norms=arguments.norms,
            ops=not arguments.no_ops,
            stacks=not arguments.no_stacks,
            keep_steps=None if arguments.all or arguments.steps else arguments.keep_steps,
            path=None if writes_at_end else self._file.path,
            break_on=break_on,
            hang_s=arguments.hang,
            survives_sigterm=True,
        )
        super().__init__(options)
        self._inner_recordings = 0  # that the program opened itself
        self._hook = ImportHook("torch", self._on_torch_import)

    def start(self) -> None:
        """Wait for the program to import torch.

        Raises:
            OutputExistsError: if the file of the trace exists; better now than after hours.
        """
        self._file.check()
        self._hook.install()

    def cancel(self) -> None:
        """Stop waiting: there is no program to run."""
        self._hook.remove()

    def _on_torch_import(self) -> None:
        if self._arguments.steps is None:
            self._begin()
            return
        from autogradviz.recorder.backward.training_steps import optimizer_step_listener

        self._step_counter.enter_context(optimizer_step_listener(self._on_optimizer_step))
        if self._arguments.steps.start == 0:
            self._begin()

    def _on_optimizer_step(self, _optimizer: object) -> None:
        """Begin or finish the recording, with ``--steps``."""
        self._steps += 1
        if not self.is_own_process:
            return
        if self._steps == self._arguments.steps.start:
            self._begin()
        elif self._steps == self._arguments.steps.stop and self.trace is not None:
            self._end(None)

    def _begin(self) -> None:
        """Begin to record; if that fails, the program runs on unrecorded."""
        try:
            self._file.delete_old()
            self._begin_recording()
        except AutogradvizError as error:
            self._has_failed = True
            print_error(str(error))
        except Exception as error:  # noqa: BLE001 - the program's import of torch must succeed
            self._has_failed = True
            print_error(f"nothing can be recorded: {type(error).__name__}: {error}")

    def _begin_recording(self) -> None:
        while True:
            try:
                self.begin(outermost_frame(), on_step=self._step_ended)
            except OutputExistsError:  # another process took the name
                if not self._file.rename():
                    raise
                self.options = replace(self.options, path=self._file.path)
            else:
                return

    def _step_ended(self, events: int) -> None:
        calls = 0 if self._recording is None else self._recording.optimizer_calls
        self._progress.step_ended(events, calls)

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Begin a new recording after the program's own one.

        If the program's own recording failed, its trace is the one to report.
        """
        if self.is_own_process and not self.is_open:
            self._inner_recordings += trace is not None
        super().resume(trace, error)

    def _begin_again(self) -> None:
        """Begin to record again, unless the first recording was written already."""
        if not (self._arguments.all or self.wrote_last_steps or self._is_after_last_step()):
            self._begin()

    def _is_after_last_step(self) -> bool:
        return self._arguments.steps is not None and self._steps >= self._arguments.steps.stop

    def _report(self, line: str) -> None:
        """Prepare a message about what could not be recorded."""
        self._messages.append(line)

    def close(self, error: BaseException | None, *, failed: bool) -> None:
        """Finish the recording, write the trace if needed, and prepare the report.

        Args:
            error: the exception that ended the program, ``SystemExit`` included.
            failed: whether the program ends with another exit code than 0.
        """
        self._hook.remove()
        self._step_counter.close()
        self._progress.end()
        if not self.is_own_process:
            return
        if isinstance(error, ModuleNotFoundError):
            self._messages.append(describe_missing_package(self._name, error))
        if isinstance(error, ImportError) and (module := module_of_script(self._name, error)):
            self._messages.append(
                f"{self._name} is a part of a package; run it as: autogradviz run -m {module}"
            )
        if self.trace is None and self._has_failed:
            return
        if self.trace is None:
            why = f"only {self._steps} steps were made" if self._steps else "torch was not used"
            if isinstance(error, SyntaxError) and not has_started(error):
                why = "the program did not start"
            self._messages.append(f"nothing was recorded: {why}")
            return
        if self._inner_recordings:
            self._messages.append(
                f"suspended during the program's own recordings ({self._inner_recordings})"
            )
        self._finish(self.trace, error, failed=failed)

    def _finish(self, trace: Trace, error: BaseException | None, *, failed: bool) -> None:
        """Diagnose and write the trace, and prepare the report."""
        raised = None if isinstance(error, SystemExit) else error
        is_quiet = self._arguments.quiet
        is_first = self._rank is None or self._rank.rank == 0
        if isinstance(error, KeyboardInterrupt) and is_first and not is_quiet:
            print_line(f"interrupted; writing {self._file} ...")
        self._end(raised)
        found = trace.diagnose()
        # What is printed is what the file shows, which may end before the program did.
        written = self._written_earlier()
        went_on = written is not None and last_part(written.log) != last_part(trace.log)
        in_file = [] if written is None else written.diagnose()
        if written is not None and raised is None:
            trace, found = written, in_file
        # A note on the exception shows the first one, from Python 3.11 on.
        others = _not_allowed(found if raised is None or sys.version_info < (3, 11) else found[1:])
        always = self._arguments.all or self._arguments.output is not None
        ended_early = isinstance(error, (SystemExit, ImportError)) and _is_empty(trace)
        writes = always or (failed and not ended_early) or bool(found) or not _is_empty(trace)
        label = "also found" if raised else "found"
        if self._rank is not None and self._rank_report is not None:
            self._exchange(self._rank, self._rank_report, others, label, writes=writes)
        elif others:
            self._messages.append(f"{label}\n{as_text(render_findings(others))}")
        if written is not None and raised is not None and (shown := _not_allowed(in_file)):
            texts = as_text(render_findings(shown))
            self._messages.append(f"found in {self._file}\n{texts}")
        is_printed = (is_first or failed) and (failed or bool(found) or not is_quiet)
        if is_printed and (writes or not ended_early):
            part = _steps_of(trace) if went_on and trace is written else None
            self._messages.append(self._result(trace, found, part, writes=writes))
        if writes:
            part = "" if written is None or not went_on else f", {_steps_of(written)}"
            self._write(trace, part, is_printed=is_printed)
        elif is_printed:
            self._messages.append("no trace was written: PyTorch ran no operator")

    def _written_earlier(self) -> Trace | None:
        """Return the trace in the file if it was written before the recording ended."""
        if self._arguments.all or not self.wrote_while_open:
            return None
        try:
            return load(self._file.path)
        except (OSError, AutogradvizError):  # reported when its size is read
            return None

    def _result(
        self, trace: Trace, findings: list[Finding], part: str | None, *, writes: bool
    ) -> str:
        """Return one line: how often optimizers stepped, and what was found in the trace.

        Calls are counted, not steps: if older steps were dropped, it is unknown whether a step of
        the program has one optimizer or several.

        Args:
            trace: of these findings.
            findings: all of them.
            part: the steps in the trace if it was written before the program ended.
            writes: whether a file is written, which the audit can read.
        """
        kept = calls = count_optimizer_calls(trace.log)
        if self._recording is not None and self._recording.trace is self.trace:
            calls = self._recording.optimizer_calls
        ran = count_calls(calls) if calls else "no call of optimizer.step()"
        if not calls and not trace.log.of(BackwardStarted):
            ran = "no backward"
        where = "" if self._rank is None else f" on rank {self._rank.rank}"
        if part is None and 0 < kept < calls:
            part = f"the last {kept:,}"
        part = "" if part is None else f" in {part}"
        if not findings:
            facts = trace._facts if writes else []  # noqa: SLF001 - the audit has no weights
            lines = count_lines_to_look_at(facts)
            more = (
                f"; autogradviz audit {self._file} lists {plural(lines, 'line')}" if lines else ""
            )
            unchecked = unchecked_backwards(facts)
            more += f"; {self._how_to_check(unchecked)}" if unchecked else ""
            return f"{ran}{where}, nothing found{part}{more}"
        allowed = describe_allowed(findings)
        allowed = f"; {allowed}" if allowed else ""
        findings = _not_allowed(findings)
        if not findings:
            return f"{ran}{where}, nothing else found{part}{allowed}"
        hints = sum(finding.confidence == "hint" for finding in findings)
        counts = {"finding": len(findings) - hints, "hint": hints}
        count = " and ".join(plural(number, word) for word, number in counts.items() if number)
        slugs = ", ".join(dict.fromkeys(finding.slug for finding in findings))
        return f"{ran}{where}, {count}{part}: {slugs}{allowed}"

    def _how_to_check(self, lines: list[SourceLocation]) -> str:
        """Return a sentence about backwards without a check, with the command for it."""
        script = self._name if self._name.endswith(".py") else "SCRIPT.py"
        return (
            f"the hand-written backward at {join_names([short_location(e) for e in lines])} is "
            f"not checked: autogradviz check {script}:FUNCTION, of a function that runs a step"
        )

    def _exchange(
        self, rank: Rank, ranks: RankReport, found: list[Finding], label: str, *, writes: bool
    ) -> None:
        """Prepare the findings that this rank prints for all ranks that share them."""
        report = {
            f"{each.slug} {each.title} {each.culprit}": as_text(render_findings([each]))
            for each in found
        }
        try:
            if writes:
                ranks.write(report)
            collected = ranks.collect(report)
        except OSError:  # the trace cannot be written either, which is reported
            collected = [(text, 1) for text in report.values()]
        for text, count in collected:
            self._messages.append(f"{label} on {count} of {rank.world_size} ranks\n{text}")

    def _write(self, trace: Trace, part: str, *, is_printed: bool) -> None:
        """Write the trace if it is not written yet, and prepare a message if ``is_printed``.

        Args:
            trace: the trace.
            part: the steps in the file if it was written before the program ended, or "".
            is_printed: whether to name the file.
        """
        file = self._file
        try:
            if self._arguments.within is not None:
                if not matches_module(trace.log, self._arguments.within):
                    self._messages.append(f"no module matches --within {self._arguments.within}")
                trace = trace.filter(module=self._arguments.within)
            if not (self._arguments.all or self.wrote_last_steps):
                file.write(trace)
            elif trace is not self.trace:
                trace.save(file.path)
            size = format_bytes(file.path.stat().st_size)
        except (OSError, AutogradvizError) as error:
            self._messages.append(f"the trace could not be written to {file}: {error}")
            return
        if is_printed:
            self._messages.append(f"{file} ({size}{part}); open it with: autogradviz html {file}")

    def report(self) -> None:
        """Print the messages on standard error, once."""
        if self.is_own_process:
            for message in self._messages:
                write_stderr(f"autogradviz: {message}\n")
            self._messages.clear()


def _not_allowed(findings: list[Finding]) -> list[Finding]:
    """Return the findings that no comment on their lines accepts."""
    return [finding for finding in findings if not finding.allowed]


def _steps_of(trace: Trace) -> str:
    """Return the numbers of the steps in a trace."""
    ended = TrainingSteps(trace.log).ended
    if not ended:
        return "the first step"
    first, last = ended[0].number, ended[-1].number
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def _is_empty(trace: Trace) -> bool:
    """Return whether the program computed nothing with PyTorch."""
    return not (trace.log.rows(OpCalled) or trace.log.rows(NodeSeen))
