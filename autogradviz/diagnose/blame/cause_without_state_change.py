"""Causes of a different recomputation that no recorded state shows: clocks, iterators, files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.autocast_cache import find_cached_cast
from autogradviz.diagnose.blame.code_run_between import REACHABLE
from autogradviz.diagnose.blame.context_fn_mismatch import find_unequal_contexts
from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.blame.recompute_cause_record import Cause
from autogradviz.diagnose.blame.region_input_overwritten import find_overwritten_input
from autogradviz.diagnose.blame.tensor_memory_or_dtype_replaced import (
    find_data_reassignment_in_region,
)
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import short_location

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow

_NON_REPEATABLE: Final = {
    "time": frozenset({"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic",
                       "monotonic_ns", "process_time"}),
    "datetime": frozenset({"now", "utcnow", "today"}),
    "os": frozenset({"urandom", "getpid"}),
    "uuid": frozenset({"uuid1", "uuid4"}),
    "secrets": frozenset({"randbelow", "choice", "token_bytes", "token_hex", "randbits"}),
    "SystemRandom": frozenset({"random", "choice", "randint"}),
    "gc": frozenset({"get_count"}),
}  # fmt: skip
"""Functions that return another value in each call, by module."""

_READS: Final = ("read_text", "read_bytes", "open(", "loadtxt")
_WRITES: Final = ("write_text", "write_bytes", "write", "dump", "save", "savez", "savetxt")


def find_unrecorded_cause(window: RecomputeWindow) -> Cause | None:
    """Return a cause that no recorded change of state shows."""
    return (
        find_unrestored_rng(window)
        or _grad_mode_test(window)
        or find_unequal_contexts(window)
        or find_data_reassignment_in_region(window)
        or find_cached_cast(window)
        or find_overwritten_input(window)
        or _non_repeatable_call(window)
    )


def find_unrestored_rng(window: RecomputeWindow) -> Cause | None:
    """Return the random state as the cause if both runs drew from it and it was not restored."""
    region, drawing = window.region, window.evidence.drawing_ops
    if region.preserve_rng:
        return None
    drawn = next((op for op in region.ops if op.seq in drawing), None)
    if drawn is None or not any(op.seq in drawing for op in window.recomputation.ops):
        return None
    return Cause(
        slug="checkpoint-random-not-restored",
        title="torch's random state was not restored for the recomputation",
        culprit=region.location,
        lines=(
            f"{drawn.name} at {short_location(drawn.location)} draws random numbers, and the "
            "region is checkpointed with preserve_rng_state=False: recomputation draws other "
            "numbers.",
        ),
        fix="checkpoint(function, *args, use_reentrant=False)  # preserve_rng_state=True",
        confidence="certain",
        events=(drawn.seq,),
        victim=drawn.location,
    )


def _non_repeatable_call(window: RecomputeWindow) -> Cause | None:
    """Return the region's call of a clock, an iterator or a file as the cause."""
    culprit = _best_in_region(
        window,
        (
            (filename, lineno, function)
            for filename in window.evidence.user_files
            for lineno, function, called in source.calls(filename, ("",))
            if _is_non_repeatable(filename, called)
        ),
    )
    if culprit is None:
        return None
    written = _file_write(window, culprit)
    lines = [
        "No recorded state differs between the two runs. The region calls, at "
        f"{short_location(culprit)}, something that returns another value each time:",
        f"        {culprit.text}",
    ]
    if written is not None:
        lines += [
            f"That file may have been written in between, at {short_location(written)}:",
            f"        {written.text}",
        ]
    return Cause(
        slug="checkpoint-not-repeatable",
        title="it calls something that returns another value each time"
        if written is None
        else "it reads a file that was written in between",
        culprit=written or culprit,
        lines=tuple(lines),
        fix="# call it before the region, and pass the result in as an argument",
        confidence="likely",
        events=(),
    )


def _file_write(window: RecomputeWindow, read: SourceLocation) -> SourceLocation | None:
    """Return the line in the window that wrote a file, if the region's line reads one."""
    if not any(word in read.text for word in _READS):
        return None
    return best_line(
        (
            LineCandidate(filename, line, function, window.ran_in_window(filename, function, line))
            for filename in window.evidence.user_files
            for line, function, called in source.calls(filename, _WRITES)
            if called.rpartition(".")[2] in _WRITES
        ),
        at_least=REACHABLE,
    )


def _is_non_repeatable(filename: str, called: str) -> bool:
    owner, _, name = called.rpartition(".")
    module = owner.rpartition(".")[2]
    if called in {"next", "open"} or name in {*_READS, *_NON_REPEATABLE.get(module, ())}:
        return True
    return any(
        called in names & source.imported(filename, module)
        for module, names in _NON_REPEATABLE.items()
    )


def _grad_mode_test(window: RecomputeWindow) -> Cause | None:
    """Return a reentrant region's test of the grad mode; its forward runs under ``no_grad``."""
    if not window.region.reentrant:
        return None
    culprit = _best_in_region(
        window,
        (
            (filename, lineno, function)
            for filename in window.evidence.user_files
            for lineno, function, _ in source.calls(filename, ("is_grad_enabled",))
        ),
    )
    if culprit is None:
        return None
    return Cause(
        slug="checkpoint-state-changed",
        title="gradients were off in its forward, and on in recomputation",
        culprit=culprit,
        lines=(
            "It is checkpointed with use_reentrant=True: its forward runs under no_grad, its "
            f"recomputation does not. The region tests this at {short_location(culprit)}:",
            f"        {culprit.text}",
        ),
        fix="checkpoint(function, *args, use_reentrant=False)  # runs both with gradients on",
        confidence="likely",
        events=(),
    )


def _best_in_region(
    window: RecomputeWindow, places: Iterable[tuple[str, int, str]]
) -> SourceLocation | None:
    return best_line(
        LineCandidate(filename, lineno, function, window.ran_in_region(filename, function))
        for filename, lineno, function in places
    )
