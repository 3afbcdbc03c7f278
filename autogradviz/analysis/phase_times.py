"""The time of forward, backward and optimizer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_duration
from autogradviz.analysis.idle_time import busy_time
from autogradviz.events import RecordingEnded

if TYPE_CHECKING:
    from autogradviz.analysis.analysis import Analysis


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """The time of each phase, summed over all steps, without the recorder and without idle time.

    A phase that runs inside another one of its kind counts once. Time between phases, such as that
    of a data loader, is in none of them, and neither are long intervals in which no op and no node
    ran. A forward begins with a module call or with an op that
    autograd records: the initialization of parameters before it is in no phase.

    Attributes:
        forward_ns: nanoseconds of operators outside backward and optimizer, with the Python code
            between them.
        backward_ns: nanoseconds of the calls of PyTorch's engine, with recomputation.
        recomputation_ns: nanoseconds of recomputing checkpointed regions.
        optimizer_ns: nanoseconds of operators in an optimizer, with the Python code between them.
        recorder_ns: nanoseconds for which the recorder worked, on all threads; they are in no other
            time. Calls of the recorder also fill caches that the program uses. That cannot be
            measured: it is estimated as the same time once more, which is included.

    Example:
        >>> times = trace.phase_times()
        >>> times.forward_ns > 0, times.recorder_ns > 0
        (True, True)
    """

    forward_ns: int
    backward_ns: int
    recomputation_ns: int
    optimizer_ns: int
    recorder_ns: int

    def __repr__(self) -> str:
        times = {"forward": self.forward_ns, "backward": self.backward_ns,
                 "of it recomputation": self.recomputation_ns, "optimizer": self.optimizer_ns,
                 "recorder": self.recorder_ns}  # fmt: skip
        return f"<{', '.join(f'{k} {format_duration(t)}' for k, t in times.items() if t)}>"


def ranges_over_steps(analysis: Analysis) -> dict[str, tuple[int, int]]:
    """Return the shortest and the longest time of each kind of span in a step that ended."""
    steps, busy = analysis.steps, busy_time(analysis)
    times = [Counter[str]() for _ in steps]
    for span in analysis.timeline.spans:
        if span.depth == 0 and times:
            times[steps.at_ns(span.start_ns)][span.kind] += busy(span.end_ns) - busy(span.start_ns)
    ended = [each for each, step in zip(times, steps, strict=True) if step.ended] or times
    kinds = {kind for each in ended for kind in each}
    return {
        kind: (min(each[kind] for each in ended), max(each[kind] for each in ended))
        for kind in kinds
    }


def measure_phases(analysis: Analysis) -> PhaseTimes:
    """Return the times of all phases of a recording."""
    times = Counter[str]()
    busy = busy_time(analysis)
    for span in analysis.timeline.spans:
        if span.depth == 0:
            times[span.kind] += busy(span.end_ns) - busy(span.start_ns)
    return PhaseTimes(
        forward_ns=times["forward"],
        backward_ns=times["backward"],
        recomputation_ns=times["recompute"],
        optimizer_ns=times["optimizer"],
        recorder_ns=sum(analysis.log.column(RecordingEnded, "recorder_ns")),
    )
