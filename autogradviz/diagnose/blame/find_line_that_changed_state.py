"""Find the line that changed the state of a checkpointed region."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.gradients_lost import find_requires_grad_write
from autogradviz.diagnose.blame.line_candidates import (
    IN_WINDOW,
    REACHABLE,
    LineCandidate,
    best_candidate,
)
from autogradviz.diagnose.blame.modes_random_numbers_and_hidden_writes import (
    SETTERS,
    context_name,
    find_context,
    find_random_call,
    names_bound_to,
)
from autogradviz.diagnose.blame.state_paths import attribute_name, item_key, owners
from autogradviz.diagnose.blame.statements_that_write_state import (
    FileWrite,
    find_writes,
)
from autogradviz.diagnose.blame.tensors_replaced_or_overwritten import (
    find_data_reassignment,
    find_deletion,
    find_functional_call,
)
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.writes_by_name_and_in_threads import (
    closures,
    creations,
    thread_dispatches,
)
from autogradviz.events import StateChanged, VersionBumped

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between_events import RecomputeWindow
    from autogradviz.diagnose.blame.state_paths import Path
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.source.python_numpy_mutating_calls import Direction
    from autogradviz.events import StateChange

_HOOK_CALLS: Final = ("register_forward", "register_full", "register_module", "register_hook")
_HOOK_REMOVALS: Final = (".remove", "_hooks.clear", "_hooks.pop")


def find_culprit(window: RecomputeWindow, change: StateChanged) -> SourceLocation | None:
    """Return the line that changed state: as recorded, else from the source."""
    evidence = window.evidence
    if change.stack_id is not None:
        return evidence.analysis.location(change.stack_id)
    if change.state_kind == "random":
        return find_random_call(window, change)
    if change.state_kind != "object":
        return find_context(window, SETTERS.get(change.state_name, ()), change)
    if change.value_kind == "rng" and change.change_kind != "added":
        return _generator_use(window, change)
    culprit = _recorded_write(window, change)
    if culprit is not None:
        return culprit
    if other_thread(evidence, change):
        culprit = find_thread_dispatch(evidence) or _write_before(window, change)
    elif not change.in_forward:
        culprit = find_functional_call(window, change)
    return culprit or find_writer(window, change, in_forward=change.in_forward)


def _recorded_write(window: RecomputeWindow, change: StateChanged) -> SourceLocation | None:
    """Return the line at which the region's forward wrote a parameter or a buffer, if it did."""
    if not (change.in_forward and change.change_kind == "version"):
        return None
    analysis, region = window.evidence.analysis, window.region
    name = f".{'.'.join(change.state_path[1:])}"
    end = region.exited_seq or window.recomputation.started_seq
    for event in analysis.log.of(VersionBumped):
        if region.entered_seq < event.seq < end and event.version == change.version:
            names = analysis.parameters.get(event.tensor_id, ())
            if any(f".{each}".endswith(name) for each in names):
                return analysis.location(event.stack_id)
    return None


def find_writer(
    window: RecomputeWindow, change: StateChange, *, in_forward: bool
) -> SourceLocation | None:
    """Return the statement that made a change, chosen by target, direction and place.

    Args:
        window: the window between forward and recomputation.
        change: the change.
        in_forward: the region's own forward made it; else code in the window.
    """
    name = attribute_name(change.state_path)
    if change.change_kind == "requires_grad":
        return find_requires_grad_write(window, on=bool(change.requires_grad))
    if name.endswith("_hooks"):
        return _hook_registration(window, change)
    if change.change_kind == "died":  # the last strong reference was dropped
        return find_deletion(window, at_least=1, in_forward=in_forward)
    if change.value_kind == "cache" and change.change_kind != "added":
        return _creation(window, name)
    return _direct_write(window, change, in_forward=in_forward)


def _direct_write(
    window: RecomputeWindow, change: StateChange, *, in_forward: bool
) -> SourceLocation | None:
    """Return the statement that assigned to the state, or mutated the object it holds."""
    writes = {
        _rated(window, change, write, in_forward=in_forward): write
        for write in _fitting_writes(window, change)
    }
    best = best_candidate(writes, at_least=0)
    other = find_data_reassignment(window, change, in_forward=in_forward)
    if other is None and not in_forward and _direction(change) == "shrank":
        other = find_deletion(window, at_least=IN_WINDOW)
    if best is None and other is None and change.change_kind == "added":
        name = attribute_name(change.state_path)
        return _creation(window, name)
    if best is None or (other is not None and best.certainty < REACHABLE):
        return other
    looped = _late_bound_closure(writes[best], window)
    return looped or _entering_line(window, change, best, in_forward=in_forward)


def _fitting_writes(window: RecomputeWindow, change: StateChange) -> list[FileWrite]:
    """Return the statements that may have written the changed state, else one of its owners."""
    path = change.state_path
    other_class = change.change_kind == "class"
    paths: list[Path] = [("__class__",)] if other_class else [path, *owners(path)]
    found = (
        find_writes(window.evidence, window.region, each, loose=loose)
        for loose, each in product((False, True), paths)
    )
    survives = _survives_reading(change)
    replaced = _direction(change) == "changed" and not survives and item_key(path) is None
    fitting = (
        [
            (filename, write)
            for filename, write in each
            if not (survives and write.drains) and not (replaced and write.direction == "shrank")
        ]
        for each in found
    )
    writes = next((each for each in fitting if each), [])
    # Statements at module level ran when the file was imported.
    ran = [w for w in writes if w[1].function or window.ran_in_window(w[0], "", w[1].lineno)]
    return ran or writes


def _rated(
    window: RecomputeWindow, change: StateChange, file_write: FileWrite, *, in_forward: bool
) -> LineCandidate:
    """Return a statement with the certainty that it made a change."""
    filename, write = file_write
    key, direction = item_key(change.state_path), _direction(change)
    fits = write.direction == direction or (write.direction == "grew" and write.key is not None)
    return LineCandidate(
        filename,
        write.lineno,
        write.function,
        window.ran_in_region(filename, write.function)
        if in_forward
        else window.ran_in_window(filename, write.function, write.lineno),
        (
            key is not None and key == write.key,
            2 * fits + (write.direction == "changed"),
            not write.indirect,
            write.declared,
        ),
    )


def _survives_reading(change: StateChange) -> bool:
    """Return whether reading a value leaves it unchanged; an iterator is consumed."""
    container = change.value_kind == "container" and change.change_kind != "added"
    return container or change.before_id is not None


def _direction(change: StateChange) -> Direction:
    """Return whether a container grew or shrank, or an item or attribute was added or removed."""
    if change.change_kind in {"added", "removed"}:
        return "grew" if change.change_kind == "added" else "shrank"
    before, after = change.before_number, change.after_number
    if change.change_kind != "size" or before is None or after is None:
        return "changed"
    return "grew" if after > before else "shrank"


def find_thread_dispatch(evidence: Evidence) -> SourceLocation | None:
    """Return the call that ran a backward in another thread, without the caller's context."""
    found = (
        source.location(filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in thread_dispatches(filename, "backward")
    )
    return next((place for place in found if "context" not in place.text), None)


def other_thread(evidence: Evidence, change: StateChange) -> StateChanged | None:
    """Return the threads of forward and recomputation as a change, None if they are the same."""
    return next(
        (
            event
            for event in evidence.analysis.log.of(StateChanged)
            if event.recompute_id == change.recompute_id and event.state_kind == "thread"
        ),
        None,
    )


def _write_before(window: RecomputeWindow, change: StateChange) -> SourceLocation | None:
    """Return the line before the region that set thread-local state."""
    for filename, write in find_writes(
        window.evidence, window.region, change.state_path, loose=True
    ):
        if window.precedes(filename, write.function, write.lineno):
            return source.location(filename, write.lineno, write.function)
    return None


def _entering_line(
    window: RecomputeWindow, change: StateChange, best: LineCandidate, *, in_forward: bool
) -> SourceLocation:
    """Return the ``with`` statement if a context manager contains the write, else the write."""
    if context_name(best.filename, best.function) and not in_forward:
        generator = source.is_context_manager(best.filename, best.function)
        parts = best.function.split(".")
        owner = parts[-1] if generator else parts[0]
        names = (owner, *names_bound_to(window.evidence, owner))
        return find_context(window, names, change) or best.location
    return best.location


def _late_bound_closure(file_write: FileWrite, window: RecomputeWindow) -> SourceLocation | None:
    """Return the function in a loop that reads the loop variable after it has changed."""
    filename, write = file_write
    text = source.location(filename, write.lineno, write.function).text
    call = window.region.location
    if not re.match(r"(async )?for\b", text) or call is None:
        return None
    names = re.findall(r"\w+", text.partition(" in ")[0].partition("for ")[2])
    made = [line for name in names for line in closures(filename, write.function, name)]
    inside = [line for line in made if write.lineno <= line <= call.lineno]
    return source.location(filename, max(inside), write.function) if inside else None


def _hook_registration(window: RecomputeWindow, change: StateChange) -> SourceLocation | None:
    """Return the line that registered or removed a hook."""
    grew = (change.after_number or 0) > (change.before_number or 0)
    added = grew or change.change_kind == "added"
    place = window.best_line(
        [
            (filename, lineno, function)
            for filename in window.evidence.user_files
            for lineno, function, called in source.calls(
                filename, _HOOK_CALLS if added else _HOOK_REMOVALS
            )
            if added or called.endswith(".remove") or "_hooks." in called
        ],
        at_least=0,
    )
    name = context_name(place.filename, place.function) if place is not None else ""
    return (find_context(window, (name,), change) or place) if name else place


def _creation(window: RecomputeWindow, name: str) -> SourceLocation | None:
    """Return the line that defines a lazily computed value or a cached function."""
    return next(
        (
            source.location(filename, lineno, function)
            for filename in window.evidence.user_files
            for lineno, function in creations(filename, name)
        ),
        None,
    )


def _generator_use(window: RecomputeWindow, change: StateChanged) -> SourceLocation | None:
    """Return the call that drew from a generator of the user's own."""
    path = change.state_path
    name = attribute_name(path[:-1] if path[-1] == "__self__" else path)
    found = [
        (filename, lineno, function)
        for filename in window.evidence.user_files
        for lineno, function in source.uses(filename, name)
    ]
    if change.in_forward:
        return window.best_line_of_region(found)
    return window.best_line(found, at_least=0)
