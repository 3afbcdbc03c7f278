"""Reasons for a region to run differently that show in nothing that was watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.autocast_cache import find_warm_cast
from autogradviz.diagnose.blame.cause import Cause
from autogradviz.diagnose.blame.context_fn_mismatch import find_one_sided
from autogradviz.diagnose.blame.data_reassigned import find_data_reassignment_in_region
from autogradviz.diagnose.blame.input_overwritten import find_rewritten
from autogradviz.diagnose.blame.window import CALLED, RecomputeWindow
from autogradviz.diagnose.formatting import short_location
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_FICKLE: Final = {
    "time": frozenset({"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic",
                       "monotonic_ns", "process_time"}),
    "datetime": frozenset({"now", "utcnow", "today"}),
    "os": frozenset({"urandom", "getpid"}),
    "uuid": frozenset({"uuid1", "uuid4"}),
    "secrets": frozenset({"randbelow", "choice", "token_bytes", "token_hex", "randbits"}),
    "SystemRandom": frozenset({"random", "choice", "randint"}),
    "gc": frozenset({"get_count"}),
}  # fmt: skip


_READS: Final = ("read_text", "read_bytes", "open(", "loadtxt")
_WRITES: Final = ("write_text", "write_bytes", "write", "dump", "save", "savez", "savetxt")


def find_unseen_cause(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return a reason that shows in nothing that was watched."""
    return (
        unrestored_random(evidence, region, again)
        or _asks_for_gradients(evidence, region, again)
        or find_one_sided(evidence, region)
        or find_data_reassignment_in_region(evidence, region, again)
        or find_warm_cast(evidence, region, again)
        or find_rewritten(evidence, region, again)
        or _never_the_same(evidence, region, again)
    )


def _never_the_same(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return where the region asks what answers otherwise each time: a clock, an iterator."""
    between = RecomputeWindow(evidence, region, again)
    found = [
        (between.inside(filename, function), -lineno, filename, function)
        for filename in evidence.user_files
        for lineno, function, called in source.calls(filename, ("",))
        if _is_fickle(filename, called)
    ]
    best = max(found, default=(0, 0, "", ""))
    if not best[0]:
        return None
    culprit = source.location(best[2], -best[1], best[3])
    written = _file_written(evidence, between, culprit)
    return Cause(
        slug="checkpoint-not-repeatable",
        title="it reads a file that was written in between"
        if written is not None
        else "it asks for something that is never the same twice",
        culprit=written or culprit,
        lines=(
            f"Nothing that was watched differs between the two runs; the region asks, at "
            f"{short_location(culprit)}, for what a second call answers otherwise:",
            f"        {culprit.text}",
            *(
                [
                    f"That file may have been written in between, at {short_location(written)}:",
                    f"        {written.text}",
                ]
                if written is not None
                else []
            ),
        ),
        fix="# ask before the region, and pass the answer in as an argument",
        confidence="likely",
        events=(),
    )


def _file_written(
    evidence: Evidence, between: RecomputeWindow, asked: SourceLocation
) -> SourceLocation | None:
    """Return what wrote a file between the two runs, where a region's line reads one."""
    if not any(word in asked.text for word in _READS):
        return None
    found = [
        (-between.outside(filename, function, line), filename, line, function)
        for filename in evidence.user_files
        for line, function, called in source.calls(filename, _WRITES)
        if called.rpartition(".")[2] in _WRITES
    ]
    best = min(found, default=None)
    return source.location(*best[1:]) if best is not None and best[0] <= -CALLED else None


def _is_fickle(filename: str, called: str) -> bool:
    owner, _, name = called.rpartition(".")
    if (
        called in {"next", "open"}
        or name in _READS
        or name in _FICKLE.get(owner.rpartition(".")[2], ())
    ):
        return True
    return any(
        called in names & source.imported(filename, module) for module, names in _FICKLE.items()
    )


def _asks_for_gradients(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return where a reentrant region asks whether gradients are on: in forward they are off."""
    if not region.reentrant:
        return None
    between = RecomputeWindow(evidence, region, again)
    found = [
        (between.inside(filename, function), filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in _questions(filename)
    ]
    best = max(found, default=(0, "", 0, ""))
    if not best[0]:
        return None
    culprit = source.location(*best[1:])
    return Cause(
        slug="checkpoint-state-changed",
        title="gradients were off in its forward, and on in recomputation",
        culprit=culprit,
        lines=(
            "It is checkpointed with use_reentrant=True: its forward runs under no_grad, its "
            f"recomputation does not. The region asks, at {short_location(culprit)}:",
            f"        {culprit.text}",
        ),
        fix="checkpoint(function, *args, use_reentrant=False)  # runs both with gradients on",
        confidence="likely",
        events=(),
    )


def _questions(filename: str) -> list[tuple[int, str]]:
    """Return line and function of what asks whether gradients are on, or wanted."""
    called = source.calls(filename, ("is_grad_enabled",))
    asked = [(lineno, function) for lineno, function, _ in called]
    return asked or source.asks(filename, ("requires_grad",))


def unrestored_random(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return the random state as the cause if both runs drew from it and it was not restored."""
    if region.preserve_rng:
        return None
    drawn = next((op for op in region.ops if op.seq in evidence.drawing_ops), None)
    if drawn is None or not any(op.seq in evidence.drawing_ops for op in again.ops):
        return None
    return Cause(
        slug="checkpoint-random-not-restored",
        title="torch's random state was not restored for the recomputation",
        culprit=region.location,
        lines=(
            f"{drawn.name} at {short_location(drawn.location)} draws random numbers, and the "
            "region is checkpointed with preserve_rng_state=False: recomputation draws others.",
        ),
        fix="checkpoint(function, *args, use_reentrant=False)  # preserve_rng_state=True",
        confidence="certain",
        events=(drawn.seq,),
        victim=drawn.location,
    )
