"""The steps of a recording that may still be written: measures of each, and findings so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis import Analysis
from autogradviz.causes import find_problems
from autogradviz.event_log import Log, TrainingSteps
from autogradviz.event_log.events_of_steps import StepEvents
from autogradviz.event_log.training_steps import STEP_KINDS
from autogradviz.events import (
    BackwardStarted,
    NormRead,
    RecorderLimited,
    RecordingEnded,
    RecordingStarted,
    StepNormRead,
)
from autogradviz.scene import build_scene

if TYPE_CHECKING:
    from autogradviz.diagnose import Finding
    from autogradviz.event_log.log import Segment
    from autogradviz.event_log.training_steps import Step
    from autogradviz.scene import Scene

NO_LOSS: Final = "not recorded: no backward of a step began at a number on the CPU"
NO_NORMS: Final = (
    "not recorded: norms are read at the end of a step if the gradients are on the CPU, and "
    "after each backward with record(fingerprints=True)"
)


@dataclass(slots=True, kw_only=True)
class RecordedStep:
    """One training step, and its measures.

    Attributes:
        step: its number, from 0.
        start_seq: of its first event.
        end_seq: of the first event after it.
        end_ns: when it ended.
        duration_ns: since the end of the step before, or since the start of the recording.
        unfinished: whether the recording ended before the step did.
        losses: numbers from which its backwards began, oldest first; None if NaN or infinite.
        ops: called operators, None until the step is analyzed or if ops were not recorded.
        saved: bytes of saved tensors held at the peak; None until the step is analyzed.
        norms: L2 norms of the gradients that its backwards left, by module; None if one is NaN or
            infinite. Empty until the step is analyzed, and if no norms were recorded.
        changed: the number of the last change, for readers that know the ones before.
    """

    step: int
    start_seq: int
    end_seq: int
    end_ns: int
    duration_ns: int
    losses: list[float | None]
    unfinished: bool = False
    ops: int | None = None
    saved: int | None = None
    norms: dict[str, float | None] = field(default_factory=dict)
    analyzed: bool = False
    changed: int = 0


@dataclass(slots=True, kw_only=True)
class FoundFinding:
    """A finding, and the steps that have it."""

    finding: Finding
    first_step: int
    count: int
    changed: int


class RecordedSteps:
    """All steps of a recording so far; one thread adds and analyzes, others may read.

    Attributes:
        steps: oldest first.
        findings: by slug and line.
        version: the number of the last change.
        generation: how often all steps were counted again, since a round was seen to repeat.
        ended: whether the recording has ended.
        started: the first event of the recording, if it was read.
    """

    def __init__(self) -> None:
        self.events = StepEvents()
        self.steps: list[RecordedStep] = []
        self.findings: dict[tuple[str, str], FoundFinding] = {}
        self.version = 0
        self.ended = False
        self.started: RecordingStarted | None = None
        self.generation = 0
        self._log = Log()  # what steps are counted from
        self._round_length = 1
        self._taken = 0  # of the steps that were counted
        self._next_step = 0
        self.missing = 0
        """Steps of which no events could be read."""
        self._unanalyzed: list[RecordedStep] = []

    def add(self, segment: Segment) -> None:
        """Append events of the recording."""
        rows = self.events.add(segment)
        for kind in (*STEP_KINDS, RecordingStarted, RecordingEnded):
            self._log.extend_rows(kind, rows[kind])
        self.started = next(iter(self._log.of(RecordingStarted)), None)
        if any(rows[kind] for kind in (*STEP_KINDS, RecordingEnded)):
            self._count_steps(next(iter(self._log.of(RecordingEnded)), None))

    def _count_steps(self, ended: RecordingEnded | None) -> None:
        """Add the steps that have ended, and at the end of the recording one that has not.

        If nothing began after the last step, its events are those to the end of the recording.
        """
        found = TrainingSteps(
            self._log,
            None if ended is None else lambda start: self.events.log_of(start, ended.seq + 1),
        )
        if found.round_length != self._round_length:
            self._round_length = found.round_length
            self._taken = self._next_step = self.missing = 0
            self.steps, self._unanalyzed, self.findings = [], [], {}
            self.generation += 1
        for step in found[self._taken :]:
            if step.ended or ended is not None:
                self._taken += 1
                self._add_step(
                    step, step.end_seq if ended is None else min(step.end_seq, ended.seq)
                )
        if ended is not None:
            self.ended = True
            self.version += 1
            if self.steps and self.steps[-1].end_seq < ended.seq:
                self.steps[-1].end_seq = ended.seq
                if self.steps[-1].analyzed:
                    self._unanalyzed.append(self.steps[-1])

    def _add_step(self, found: Step, end_seq: int) -> None:
        skipped = found.number - self._next_step
        self._next_step = found.number + 1
        if skipped:  # the begin of this step is unknown
            self.missing += skipped + 1
            return
        step = RecordedStep(
            step=found.number,
            start_seq=found.start_seq,
            end_seq=end_seq,
            end_ns=found.end_ns,
            duration_ns=found.end_ns - found.start_ns,
            losses=[*found.losses],
            unfinished=not found.ended,
        )
        self.steps.append(step)
        self._unanalyzed.append(step)
        self._mark_changed(step)

    def _mark_changed(self, changed: RecordedStep | FoundFinding) -> None:
        self.version += 1
        changed.changed = self.version

    @property
    def unanalyzed(self) -> int:
        """The number of steps whose events were not analyzed yet."""
        return len(self._unanalyzed)

    def log_of(self, step: RecordedStep) -> Log:
        """Return the events of a step, and a note that the others are missing."""
        log = self.events.log_of(step.start_seq, step.end_seq)
        text = (
            f"only step {step.step:,} is here: graphs, saved tensors and versions from before it "
            "are missing"
        )
        row = (step.end_seq, step.end_ns, 0, None, "keep_steps", text)
        log.extend_rows(RecorderLimited, [row])
        return log

    def scene_of(self, number: int, title: str) -> Scene | None:
        """Return the view model of a step, None if there is no such step."""
        found = next((step for step in list(self.steps) if step.step == number), None)
        if found is None:
            return None
        analysis = Analysis(self.log_of(found))
        return build_scene(analysis, find_problems(analysis)[0], title=f"{title}, step {number:,}")

    def analyze_next(self, *, with_findings: bool = True) -> bool:
        """Analyze the newest step that was not analyzed yet.

        Returns:
            False if all steps are analyzed.
        """
        if not self._unanalyzed:
            return False
        step = self._unanalyzed.pop()
        analysis = Analysis(self.log_of(step))
        started = analysis.started
        if started is not None and "ops" in started.options:
            step.ops = len(analysis.ops)
        step.saved = max(analysis.memory.nbytes, default=0)
        step.norms = _norms_by_module(analysis)
        step.analyzed = True
        if with_findings:
            for finding in find_problems(analysis)[0]:
                self._add_finding(finding, step)
        self._mark_changed(step)
        return True

    def _add_finding(self, finding: Finding, step: RecordedStep) -> None:
        known = self.findings.get(key := (finding.slug, str(finding.culprit or finding.title)))
        if known is None:
            known = self.findings[key] = FoundFinding(
                finding=finding, first_step=step.step, count=0, changed=0
            )
        if step.step < known.first_step:
            known.first_step, known.finding = step.step, finding
        known.count += 1
        self._mark_changed(known)

    def changes_after(self, version: int) -> dict[str, Any]:
        """Return the changes after a version, as values that JSON can represent."""
        return {
            "version": self.version,
            "ended": self.ended,
            "model": (self.started and self.started.model_name) or "",
            "torch": self.started.torch_version if self.started else "",
            "startedMs": self.started.started_at_ns / 1e6 if self.started else 0,
            "unanalyzed": self.unanalyzed,
            "missing": self.missing,
            "noLoss": NO_LOSS,
            "noNorms": NO_NORMS,
            "steps": [_step_values(each) for each in list(self.steps) if each.changed > version],
            "findings": [
                _finding_values(each)
                for each in list(self.findings.values())
                if each.changed > version
            ],
        }


def _norms_by_module(analysis: Analysis) -> dict[str, float | None]:
    """Return the last norm of each gradient of a step, summed by block: "h.0", "lm_head"."""
    log = analysis.log
    # The norms that are read when the recording ends may be those of an earlier step.
    backwards = {started.backward_id for started in log.of(BackwardStarted)}
    reads: list[NormRead | StepNormRead] = [
        read for read in log.of(NormRead) if read.place == "gradient"
    ]
    reads += log.of(StepNormRead)
    last = {read.tensor_id: read.norm for read in reads if read.backward_id in backwards}
    squares: dict[str, float] = defaultdict(float)
    bad: set[str] = set()
    order = list(analysis.parameters)
    places = dict(zip(order, range(len(order)), strict=True))
    for tensor_id in sorted(last, key=lambda each: places.get(each, len(order))):
        names, norm = analysis.parameters.get(tensor_id), last[tensor_id]
        block = _block(names[0]) if names else ""
        squares[block] += 0.0 if norm is None else norm * norm
        if norm is None:
            bad.add(block)
    return {block: None if block in bad else sqrt(total) for block, total in squares.items()}


def _block(parameter: str) -> str:
    """Return the block of a parameter: its module's name up to the first number."""
    parts = parameter.split(".")[:-1]
    for count, part in enumerate(parts, 1):
        if part.isdecimal():
            return ".".join(parts[:count])
    return parts[0] if parts else ""


def _step_values(step: RecordedStep) -> dict[str, Any]:
    return {
        "step": step.step,
        "unfinished": step.unfinished,
        "ms": step.duration_ns / 1e6,
        "losses": step.losses,
        "ops": step.ops,
        "saved": step.saved,
        "norms": step.norms,
        "analyzed": step.analyzed,
    }


def _finding_values(found: FoundFinding) -> dict[str, Any]:
    finding = found.finding
    return {
        "slug": finding.slug,
        "title": finding.title,
        "line": "" if finding.culprit is None else str(finding.culprit),
        "text": finding.culprit.text if finding.culprit else "",
        "fix": finding.fix,
        "firstStep": found.first_step,
        "count": found.count,
    }
