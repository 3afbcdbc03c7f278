"""The time of forward, backward and optimizer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.compile_intervals import compile_intervals
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
        compile_ns: nanoseconds in which a compiler ran, as at the first forward and in the first
            backward; they are in no other time.
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
    compile_ns: int = 0

    def __repr__(self) -> str:
        times = {"forward": self.forward_ns, "backward": self.backward_ns,
                 "of it recomputation": self.recomputation_ns, "optimizer": self.optimizer_ns,
                 "compiling": self.compile_ns, "recorder": self.recorder_ns}  # fmt: skip
        return f"<{', '.join(f'{k} {format_duration(t)}' for k, t in times.items() if t)}>"


WARM_UP: Final = 2
"""A first step is warm-up if it takes this many times as long as each other step."""
MIN_OTHERS: Final = 2


def warm_up(analysis: Analysis) -> float:
    """Return the time of the first step over that of the longest other one.

    It allocates, loads kernels and compiles. Idle time does not count. The result is 0.0 if that is
    less than ``WARM_UP``, if fewer than two other steps ended, or if the first step was not kept.
    """
    busy, steps = busy_time(analysis), analysis.steps.ended
    if len(steps) <= MIN_OTHERS or steps[0].number:
        return 0.0
    times = [busy(step.end_ns) - busy(step.start_ns) for step in steps]
    for span in analysis.timeline.spans:
        if span.kind == "compile" and not span.depth:
            for at, step in enumerate(steps):
                start_ns, end_ns = max(span.start_ns, step.start_ns), min(span.end_ns, step.end_ns)
                if start_ns < end_ns:  # no op runs, but it is not idle
                    times[at] += end_ns - start_ns - (busy(end_ns) - busy(start_ns))
    factor = times[0] / max(1, *times[1:])
    return factor if factor >= WARM_UP else 0.0


def compared_steps(analysis: Analysis) -> list[int]:
    """Return the indices of the steps whose times are compared: all that ended but a cold one.

    The first step of a program is cold: it allocates, loads kernels and compiles. It counts only if
    no other step ended; if none did, all count.
    """
    steps = analysis.steps
    ended = [at for at, step in enumerate(steps) if step.ended] or [*range(len(steps))]
    is_cold = len(ended) > 1 and steps[ended[0]].number == 0
    return ended[is_cold:]


def times_of_steps(analysis: Analysis) -> list[Counter[str]]:
    """Return the time of each kind of span in each of the ``compared_steps``."""
    steps, busy = analysis.steps, busy_time(analysis)
    times = [Counter[str]() for _ in steps]
    for span in analysis.timeline.spans:
        if span.depth == 0 and times:
            times[steps.at_ns(span.start_ns)][span.kind] += busy(span.end_ns) - busy(span.start_ns)
    return [times[at] for at in compared_steps(analysis)]


def ranges_over_steps(analysis: Analysis) -> dict[str, tuple[int, int]]:
    """Return the shortest and the longest time of each kind of span in ``times_of_steps``."""
    times = times_of_steps(analysis)
    kinds = {kind for each in times for kind in each}
    return {
        kind: (min(each[kind] for each in times), max(each[kind] for each in times))
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
        compile_ns=sum(
            end - start for start, end in compile_intervals(analysis.log, analysis.end_ns)
        ),
    )
