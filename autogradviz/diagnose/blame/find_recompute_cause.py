"""Find why a recomputation differed: the state that changed, and the line that changed it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import is_length, state_texts
from autogradviz.diagnose.blame.cause_without_state_change import (
    find_unrecorded_cause,
    find_unrestored_rng,
)
from autogradviz.diagnose.blame.code_run_between import RecomputeWindow
from autogradviz.diagnose.blame.find_state_writer import (
    find_culprit,
    find_thread_dispatch,
    other_thread,
)
from autogradviz.diagnose.blame.python_numpy_random import find_random_call
from autogradviz.diagnose.blame.recompute_cause_record import Cause
from autogradviz.diagnose.blame.region_input_overwritten import find_overwritten_input
from autogradviz.diagnose.blame.state_paths import (
    attribute_name,
    base,
    base_name,
    item_key,
    with_owner,
    without_parts,
    words,
)
from autogradviz.diagnose.blame.tensor_created_after_forward import find_recreated_tensor
from autogradviz.diagnose.evidence.recompute_value_diff import first_value_mismatch
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import short_location
from autogradviz.events import FrameSeen, StateChanged

if TYPE_CHECKING:
    from autogradviz.analysis import Op, Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


_FOR_THREADS: Final = (
    "# set it inside the checkpointed function, or let backward run as the forward did:\n"
    "context = contextvars.copy_context()\n"
    "pool.submit(context.run, loss.backward)"
)


def random_cause(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return why the recomputation drew other random numbers, None if it did not."""
    window = RecomputeWindow(evidence, region, again)
    cause = find_unrestored_rng(window)
    if cause is not None:
        return cause
    changes = _changes(window, kinds=("random",))
    if not changes:
        return None
    culprit = find_random_call(window, changes[0])
    if culprit is None:
        return None
    return replace(_cause_of(evidence, changes[0], changes[1:], culprit), victim=region.location)


def find_cause(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return the most probable cause of a different recomputation, None if none was found."""
    window = RecomputeWindow(evidence, region, again)
    changes = _changes(window)
    if not changes:
        return find_unrecorded_cause(window)
    mentioned = _names_at_divergence(window)
    read = _names_in_region(window)
    op = _first_different_op(again)
    line = op.location.text if op is not None and op.location is not None else ""

    def rank(change: StateChanged) -> tuple[int, bool, bool, bool, int]:
        draws = change.state_kind == "random" and find_random_call(window, change)
        return (
            len(mentioned) + 1 if draws else _relevance(change, mentioned, read),
            not _same_value(change),
            attribute_name(change.state_path) in re.findall(r"\w+", line),
            change.stack_id is not None,
            -change.seq,
        )

    best = max(changes, key=rank)
    if _written_in_place(best):
        overwritten = find_overwritten_input(window)
        if overwritten is not None:
            return overwritten
    if not rank(best)[0]:
        unrecorded = find_unrecorded_cause(window)
        if unrecorded is not None:
            return unrecorded
    same_ops = again.first_difference is None and best.stack_id is None and best.after_id is None
    recreated = find_recreated_tensor(window, changes) if same_ops else None
    best, culprit = recreated or (best, None)
    others = [change for change in changes if change is not best]
    culprit = culprit or find_culprit(window, with_owner(best, others))
    culprit = culprit or _write_to_same_object(evidence, best, others)
    cause = _cause_of(evidence, best, others, culprit)
    return cause if rank(best)[0] else replace(cause, confidence="likely")


def _write_to_same_object(
    evidence: Evidence, best: StateChanged, others: list[StateChanged]
) -> SourceLocation | None:
    """Return the recorded line that wrote another attribute of the same object.

    One call of a library may write several: pruning registers a hook and replaces the weight.
    """
    owner = base(best.state_path)[:-1]
    return next(
        (
            evidence.analysis.location(other.stack_id)
            for other in others
            if other.stack_id is not None
            and base(other.state_path)[:-1] == owner
            and other.in_forward == best.in_forward
        ),
        None,
    )


def _changes(
    window: RecomputeWindow, kinds: tuple[str, ...] = ("object", "random", "context")
) -> list[StateChanged]:
    """Return the state that differed between forward and recomputation.

    A random state counts only if the region itself drew numbers.
    """
    found = [
        change
        for change in window.evidence.analysis.log.of(StateChanged)
        if change.recompute_id == window.recomputation.recompute_id
        and change.state_kind in kinds
        and (change.state_kind != "random" or change.in_forward)
    ]
    return without_parts(found)


def _cause_of(
    evidence: Evidence,
    best: StateChanged,
    others: list[StateChanged],
    culprit: SourceLocation | None,
) -> Cause:
    return Cause(
        slug=_slug(best),
        title=_title(best),
        culprit=culprit,
        lines=(
            _difference(best),
            _writer_sentence(evidence, best, culprit),
            *[
                f"  also {c.state_name}: {' → '.join(state_texts(c.before, c.after))}"
                for c in others[:4]
            ],
            *_threads(evidence, best),
        ),
        fix=_FOR_THREADS if other_thread(evidence, best) else _fix(best),
        confidence="certain" if best.stack_id is not None else "likely",
        events=(best.seq,),
    )


def _difference(best: StateChanged) -> str:
    """Return a sentence about the state; of a random one, its number says nothing."""
    if best.value_kind == "rng" and best.change_kind != "added":
        values = "was in another state when recomputation started"
    else:
        before, after = _before(best), _after(best)
        values = f"{before} when forward started and {after} when recomputation started"
    return f"State changed between forward and recomputation: {best.state_name} {values}."


def _threads(evidence: Evidence, best: StateChanged) -> list[str]:
    """Return a sentence if the recomputation ran in another thread than the forward."""
    thread = other_thread(evidence, best)
    if thread is None:
        return []
    return [
        f"  The forward ran in thread {thread.before}, the recomputation in {thread.after}: "
        "thread-locals and context variables are not shared."
    ]


def _slug(change: StateChanged) -> str:
    kinds = {"random": "checkpoint-random-state", "context": "checkpoint-context-missing"}
    return kinds.get(change.state_kind, "checkpoint-state-changed")


def _display_name(change: StateChanged) -> str:
    key = item_key(change.state_path) or ""
    named_item = key.endswith("'")
    return change.state_name if named_item else base_name(change.state_path)


def _title(change: StateChanged) -> str:
    name = _display_name(change)
    if change.value_kind == "array" and change.change_kind == "content":
        return f"{name} held other values in recomputation"
    if change.value_kind == "rng" and change.change_kind != "added":
        return f"{name} was in another state in recomputation"
    if _same_value(change):
        return f"{name} was another object, or written, before recomputation"
    return f"{name} {_before(change)} in forward, {_after(change)} in recomputation"


def _before(change: StateChanged) -> str:
    """Return "had 1 item", or "was None"."""
    verb = "had" if is_length(change.before) and is_length(change.after) else "was"
    return f"{verb} {state_texts(change.before, change.after)[0]}"


def _after(change: StateChanged) -> str:
    return state_texts(change.before, change.after)[1]


def _writer_sentence(
    evidence: Evidence, change: StateChanged, culprit: SourceLocation | None
) -> str:
    when = "The region's own forward" if change.in_forward else "Code that ran after the forward"
    if culprit is not None and change.stack_id is None and other_thread(evidence, change):
        if culprit == find_thread_dispatch(evidence):
            place = f"{short_location(culprit)}:\n        {culprit.text}"
            return f"Backward was started in another thread at {place}"
        return f"It was set at {short_location(culprit)}, for one thread:\n        {culprit.text}"
    if culprit is None:
        return f"{when} changed it; the line was not found."
    return f"{when} changed it, at {short_location(culprit)}:\n        {culprit.text}"


def _first_different_op(again: Recomputation) -> Op | None:
    """Return the first op at which forward and recomputation differ."""
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    pair = pair or first_value_mismatch(again)
    return (pair.recompute or pair.forward) if pair is not None else None


def _names_at_divergence(window: RecomputeWindow) -> list[set[str]]:
    """Return the names read by each function on the stack of the first different op."""
    evidence, region = window.evidence, window.region
    op = _first_different_op(window.recomputation)
    stack_id = op.stack_id if op is not None else None
    if stack_id is None and region.ops:
        stack_id = region.ops[0].stack_id
    library = {
        (event.filename, event.lineno)
        for event in evidence.analysis.log.of(FrameSeen)
        if event.library
    }
    return [
        source.names_in(place.filename, place.function)
        for place in evidence.analysis.stack(stack_id)
        if (place.filename, place.lineno) not in library
    ]


def _names_in_region(window: RecomputeWindow) -> set[str]:
    """Return the names read by the functions that the region ran or may have called."""
    return {
        name
        for filename in window.evidence.user_files
        for function, _ in source.functions(filename)
        if function and window.ran_in_region(filename, function)
        for name in source.names_in(filename, function)
    }


def _same_value(change: StateChanged) -> bool:
    """Return whether only the identity or the version changed."""
    return change.change_kind in {"identity", "version"}


def _written_in_place(change: StateChanged) -> bool:
    """Return whether the same memory has another version, and the write was not recorded."""
    written = change.version != change.seen_version and change.before_id is not None
    return change.stack_id is None and written and change.before_id == change.after_id


def _relevance(change: StateChanged, mentioned: list[set[str]], read: set[str]) -> int:
    """Return the proximity to the divergence at which a name is read; 0 if it is not read.

    Contexts, hooks and training flags take effect without being named.
    """
    nearest = len(mentioned) + 2
    if change.state_kind == "context" or attribute_name(change.state_path) == "training":
        return nearest
    names = words(base(change.state_path))
    names -= {"self", "state"}
    if change.state_kind == "random":
        names = {"random", "rng"}
    elif attribute_name(change.state_path).endswith("_hooks"):
        return nearest
    for distance, used in enumerate(mentioned):
        if names & used:
            return nearest - 1 - distance
    return int(bool(names & read))


def _fix(change: StateChanged) -> str:
    tail = _display_name(change)
    if change.state_kind == "random":
        return (
            "# draw with torch (checkpoint restores its random state), or draw before the region\n"
            "# and pass the result in as an argument"
        )
    if change.state_kind == "context":
        return (
            "# keep the context open until backward() has run, or enter it inside the\n"
            "# checkpointed function, so that recomputation enters it too"
        )
    if change.state_path[-1] == "training":
        return "# call train() or eval() after backward(), or copy.deepcopy(model) to evaluate"
    if attribute_name(change.state_path).endswith("_hooks"):
        return f"# do not change {tail} in the region, or before backward() has run"
    if not change.in_forward:
        return f"# do not change {tail} until backward() has run"
    return (
        f"# draw from {tail} before the region, and pass the result in as an argument;\n"
        "# checkpoint restores only the random state of torch's default generators"
        if change.value_kind == "rng"
        else f"# a checkpointed region runs twice: keep {tail} out of it, pass its value in as an\n"
        "# argument, or write it outside the region"
    )
