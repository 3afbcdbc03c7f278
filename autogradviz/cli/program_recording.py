"""The recording of a program under ``autogradviz run``."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.cli.import_hook import ImportHook
from autogradviz.cli.output_path import TraceFile
from autogradviz.cli.program_traceback import outermost_frame
from autogradviz.cli.progress import Progress
from autogradviz.cli.rank_report import RankReport
from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import matches_module
from autogradviz.recording.lifecycle import Recording, set_outer_recording
from autogradviz.recording_options import RecordingOptions
from autogradviz.render.terminal_text import as_text, render_findings
from autogradviz.support.process_rank import current_rank
from autogradviz.support.standard_error import write_stderr

if TYPE_CHECKING:
    import argparse

    from autogradviz.breakpoints.stop_condition import StopCondition
    from autogradviz.cli.run_script import Program
    from autogradviz.diagnose import Finding
    from autogradviz.support.process_rank import Rank
    from autogradviz.trace import Trace


def print_error(message: str) -> None:
    """Print an error as one line on standard error."""
    write_stderr(f"autogradviz: {' '.join(message.split())}\n")


class ProgramRecording:
    """Begins when the program imports torch, and writes the trace when the program ends.

    Does nothing in a forked child of the program.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        program: Program,
        break_on: tuple[StopCondition, ...] = (),
    ) -> None:
        self._options = options
        self._process_id = os.getpid()
        self._messages: list[str] = []
        self._trace: Trace | None = None
        self._has_failed = False  # to begin, which was printed
        self._steps = 0  # counted only with --steps
        self._step_counter = ExitStack()
        rank = current_rank()
        self._rank = rank if rank is not None and rank.world_size > 1 else None
        self._file = TraceFile(
            options.output, program.stem, overwrite=options.overwrite, rank=self._rank
        )
        self._report = (
            None if self._rank is None else RankReport(self._file.path.parent, self._rank)
        )
        is_first = self._rank is None or self._rank.rank == 0
        self._progress = Progress(quiet=options.quiet or bool(break_on) or not is_first)
        self._recording_options = RecordingOptions(
            fingerprints=options.fingerprints,
            norms=options.norms,
            ops=not options.no_ops,
            stacks=not options.no_stacks,
            keep_steps=None if options.all or options.steps else options.keep_steps,
            break_on=break_on,
            hang_s=options.hang,
        )
        self._recording = self._new_recording()
        self._inner_recordings = 0  # that the program opened itself
        self._hook = ImportHook("torch", self._on_torch_import)

    def _new_recording(self) -> Recording:
        options = self._options
        writes_at_end = options.steps or options.within
        path = self._file.path if options.all or not writes_at_end else None
        return Recording(replace(self._recording_options, path=path))

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
        if self._options.steps is None:
            self._begin()
            return
        from autogradviz.recorder.engine.training_steps import optimizer_step_listener

        self._step_counter.enter_context(optimizer_step_listener(self._on_optimizer_step))
        if self._options.steps.start == 0:
            self._begin()

    def _on_optimizer_step(self, _optimizer: object) -> None:
        """Begin or finish the recording, with ``--steps``."""
        self._steps += 1
        if os.getpid() != self._process_id:
            return
        if self._steps == self._options.steps.start:
            self._begin()
        elif self._steps == self._options.steps.stop and self._trace is not None:
            self._finish(None)

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
        else:
            set_outer_recording(self)

    def _begin_recording(self) -> None:
        while True:
            try:
                trace = self._recording.begin(outermost_frame(), self._progress.step_ended)
            except OutputExistsError:  # another process took the name
                if not self._file.rename():
                    raise
                self._recording = self._new_recording()
            else:
                self._trace = trace
                return

    def suspend(self) -> None:
        """Finish the recording, because the program begins one of its own.

        Inside another dispatch mode, or in another thread, it cannot be finished and stays open.
        """
        if os.getpid() == self._process_id and self._recording.is_innermost:
            self._finish(None)

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Begin a new recording after the program's own one.

        If the program's own recording failed, its trace is the one to report. If the first
        recording was written already, nothing more is recorded.
        """
        if os.getpid() != self._process_id or self._recording.is_open:
            return
        self._inner_recordings += trace is not None
        if error is not None:
            self._trace = trace
        elif not (
            self._options.all or self._recording.wrote_last_steps or self._is_after_last_step()
        ):
            self._recording = self._new_recording()
            self._begin()

    def _is_after_last_step(self) -> bool:
        return self._options.steps is not None and self._steps >= self._options.steps.stop

    def _finish(self, error: BaseException | None) -> None:
        """Finish the recording if it is open."""
        set_outer_recording(None)
        if not self._recording.is_open:
            return
        missed = self._recording.finish(error)
        if missed is not None and missed.summary is not None:
            self._messages.append(missed.summary.removeprefix("autogradviz "))

    def close(self, error: BaseException | None, *, failed: bool) -> None:
        """Finish the recording, write the trace if needed, and prepare the report.

        Args:
            error: the exception that ended the program, ``SystemExit`` included.
            failed: whether the program ends with another exit code than 0.
        """
        self._hook.remove()
        self._step_counter.close()
        self._progress.end()
        if os.getpid() != self._process_id:
            return
        if self._trace is None and self._has_failed:
            return
        if self._trace is None:
            why = f"only {self._steps} steps were made" if self._steps else "torch was not used"
            self._messages.append(f"nothing was recorded: {why}")
            return
        if self._inner_recordings:
            self._messages.append(
                f"suspended during the program's own recordings ({self._inner_recordings})"
            )
        raised = None if isinstance(error, SystemExit) else error
        self._finish(raised)
        found = self._trace.diagnose()
        # A note on the exception shows the first one, from Python 3.11 on.
        others = found if raised is None or sys.version_info < (3, 11) else found[1:]
        always = self._options.all or self._options.output is not None
        writes = failed or bool(found) or always or self._recording.wrote_last_steps
        label = "also found" if raised else "found"
        if self._rank is not None and self._report is not None:
            self._exchange(
                self._rank, self._report, others, "also found" if raised else "found", writes=writes
            )
        elif others:
            label = "also found" if raised else "found"
            self._messages.append(f"{label}\n{as_text(render_findings(others))}")
        if writes:
            self._write(
                self._trace, is_printed=self._rank is None or self._rank.rank == 0 or failed
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

    def _write(self, trace: Trace, *, is_printed: bool) -> None:
        """Write the trace if it is not written yet, and prepare a message if ``is_printed``."""
        file = self._file
        try:
            if self._options.within is not None:
                if not matches_module(trace.log, self._options.within):
                    self._messages.append(f"no module matches --within {self._options.within}")
                trace = trace.filter(module=self._options.within)
            if not (self._options.all or self._recording.wrote_last_steps):
                file.write(trace)
            elif trace is not self._trace:
                trace.save(file.path)
            size = format_bytes(file.path.stat().st_size)
        except (OSError, AutogradvizError) as error:
            self._messages.append(f"the trace could not be written to {file}: {error}")
            return
        if is_printed:
            self._messages.append(f"{file} ({size}); open it with: autogradviz html {file}")

    def report(self) -> None:
        """Print the messages on standard error, once."""
        if os.getpid() == self._process_id:
            for message in self._messages:
                write_stderr(f"autogradviz: {message}\n")
            self._messages.clear()
