"""Which line changed what surrounds a checkpointed region."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.candidates import Candidate, find_candidates
from autogradviz.diagnose.blame.context_manager import SETTERS, context_name, find_context
from autogradviz.diagnose.blame.data_reassigned import find_data_reassignment, find_functional_call
from autogradviz.diagnose.blame.deletion import find_deletion
from autogradviz.diagnose.blame.lazy_init import find_first_access, names_bound_to
from autogradviz.diagnose.blame.random_call import find_draw
from autogradviz.diagnose.blame.requires_grad import find_toggle
from autogradviz.diagnose.blame.state_paths import attribute_name, item_key, owners
from autogradviz.diagnose.blame.window import BETWEEN, CALLED, RecomputeWindow
from autogradviz.diagnose.source import index as source
from autogradviz.diagnose.source.threads import thread_dispatches
from autogradviz.diagnose.source.writes import Write, closures, creations, match_value
from autogradviz.events import StateChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.blame.state_paths import Path
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.source.mutating_calls import Direction
    from autogradviz.events import StateChange

_HOOK_CALLS: Final = ("register_forward", "register_full", "register_module", "register_hook")


def find_culprit(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChanged
) -> SourceLocation | None:
    """Return the line that made a difference: seen while recording, else read in the source."""
    if change.stack_id is not None:
        return evidence.analysis.location(change.stack_id)
    if change.state_kind == "random":
        return find_draw(evidence, region, again, change)
    if change.state_kind != "object":
        return find_context(evidence, region, again, SETTERS.get(change.state_name, ()), change)
    if change.value_kind == "rng" and change.change_kind != "added":
        return _use(evidence, region, again, change)
    bound = None
    if other_thread(evidence, change):
        bound = find_thread_dispatch(evidence) or _set_before(evidence, region, again, change)
    elif not change.in_forward:
        bound = find_functional_call(evidence, region, change)
    return bound or find_writer(evidence, region, again, change, in_forward=change.in_forward)


def find_writer(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    change: StateChange,
    *,
    in_forward: bool,
) -> SourceLocation | None:
    """Return the statement that writes what changed, by name, direction and place."""
    if change.change_kind == "requires_grad":
        return find_toggle(evidence, region, again, on=bool(change.requires_grad))
    if attribute_name(change.state_path).endswith("_hooks"):
        return _hooked(evidence, region, again, change)
    between = RecomputeWindow(evidence, region, again)
    name, key = attribute_name(change.state_path), item_key(change.state_path)
    if change.value_kind == "cache" and change.change_kind != "added":
        asked = None if in_forward else find_first_access(evidence, between, name)
        return asked or _made(evidence, name)
    wanted = _direction(change)

    def score(candidate: Candidate) -> tuple[int, int, bool, int, bool, bool, int]:
        filename, write = candidate
        inside = between.inside(filename, write.function)
        outside = between.outside(filename, write.function, write.lineno)
        fits = write.direction == wanted or (write.direction == "grew" and write.key is not None)
        return (
            inside if in_forward else outside,
            match_value(write, change.after),
            key is not None and key == write.key,
            2 * fits + (write.direction == "changed"),
            not write.indirect,
            write.declared,
            -write.lineno,
        )

    path = change.state_path
    other_class = change.change_kind == "class"
    paths: list[Path] = [("__class__",)] if other_class else [path, *owners(path)]
    sure = (find_candidates(evidence, region, each, loose=False) for each in paths)
    loose = (find_candidates(evidence, region, each, loose=True) for each in paths)
    stays = _survives_reading(change)
    counted = wanted == "changed" and not stays and key is None  # nothing was taken from it
    fitting = (
        [c for c in each if not (stays and c[1].drains)
         and not (counted and c[1].direction == "shrank")]
        for each in chain(sure, loose)
    )  # fmt: skip
    candidates = next((each for each in fitting if each), [])
    ran = [c for c in candidates if c[1].function or between.outside(c[0], "", c[1].lineno)]
    candidates = ran or candidates  # a file's own lines ran when it was imported
    dead = change.change_kind == "died"
    other = find_data_reassignment(evidence, between, change, in_forward=in_forward)
    if dead:
        other = find_deletion(evidence, between, least=1, in_forward=in_forward)
    elif other is None and not in_forward and wanted == "shrank":
        other = find_deletion(evidence, between, least=BETWEEN)
    if not candidates and change.change_kind == "added":  # functools.cached_property
        asked = None if in_forward else find_first_access(evidence, between, name)
        other = other or asked or _made(evidence, name)
    if (
        dead
        or not candidates
        or (other is not None and score(max(candidates, key=score))[0] < CALLED)
    ):
        return other
    filename, write = max(candidates, key=score)
    looped = _loop_variable(filename, write, region)
    if looped is not None:
        return looped
    return _entered(evidence, region, again, change, (filename, write), in_forward=in_forward)


def _survives_reading(change: StateChange) -> bool:
    """Return whether going through a value does not change it, as it does an iterator."""
    container = change.value_kind == "container" and change.change_kind != "added"
    return container or change.before_id is not None


def find_thread_dispatch(evidence: Evidence) -> SourceLocation | None:
    """Return the call that had another thread run a backward, without the caller's context."""
    found = (
        source.location(filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in thread_dispatches(filename, "backward")
    )
    return next((place for place in found if "context" not in place.text), None)


def _set_before(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChange
) -> SourceLocation | None:
    """Return where what belongs to one thread was set: in the other it was not changed."""
    between = RecomputeWindow(evidence, region, again)
    for filename, write in find_candidates(evidence, region, change.state_path, loose=True):
        if between.before(filename, write.function, write.lineno):
            return source.location(filename, write.lineno, write.function)
    return None


def other_thread(evidence: Evidence, change: StateChange) -> StateChanged | None:
    """Return what the threads of the two runs were, None where it was one."""
    return next(
        (
            event
            for event in evidence.analysis.log.of(StateChanged)
            if event.recompute_id == change.recompute_id and event.state_kind == "thread"
        ),
        None,
    )


def _entered(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    change: StateChange,
    found: tuple[str, Write],
    *,
    in_forward: bool,
) -> SourceLocation | None:
    """Return the ``with`` where the write is that of a context manager, else the write."""
    filename, write = found
    method = write.function.rpartition(".")[2]
    generator = source.is_context_manager(filename, write.function)
    here = source.location(filename, write.lineno, write.function)
    if context_name(filename, write.function) and not in_forward:
        owner = method if generator else write.function.split(".")[0]
        names = (owner, *names_bound_to(evidence, owner))
        return find_context(evidence, region, again, names, change) or here
    return here


def _loop_variable(filename: str, write: Write, region: Region) -> SourceLocation | None:
    """Return where a function was made that reads a loop's variable after the loop moved on."""
    here = source.location(filename, write.lineno, write.function)
    if not re.match(r"(async )?for\b", here.text) or region.location is None:
        return None
    names = re.findall(r"\w+", here.text.partition(" in ")[0].partition("for ")[2])
    made = [line for name in names for line in closures(filename, write.function, name)]
    inside = [line for line in made if write.lineno <= line <= region.location.lineno]
    return source.location(filename, max(inside), write.function) if inside else None


def _hooked(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChange
) -> SourceLocation | None:
    """Return the line that registered or removed a hook."""
    grew = (change.after_number or 0) > (change.before_number or 0)
    added = grew or change.change_kind == "added"
    words = _HOOK_CALLS if added else (".remove", "_hooks.clear", "_hooks.pop")
    found = [
        (filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function, called in source.calls(filename, words)
        if added or called.endswith(".remove") or "_hooks." in called
    ]
    place = _nearest(evidence, region, again, found)
    if place is None:
        return None
    name = context_name(place.filename, place.function)
    if not name:
        return place
    return find_context(evidence, region, again, (name,), change) or place


def _made(evidence: Evidence, name: str) -> SourceLocation | None:
    for filename in evidence.user_files:
        for lineno, function in creations(filename, name):
            return source.location(filename, lineno, function)
    return None


def _use(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChanged
) -> SourceLocation | None:
    """Return the call that draws from a generator of the user's own, or from one by its method."""
    path = change.state_path
    name = attribute_name(path[:-1] if path[-1] == "__self__" else path)
    found = [
        (filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in source.uses(filename, name)
    ]
    if change.in_forward:
        between = RecomputeWindow(evidence, region, again)
        best = max((between.inside(place[0], place[2]) for place in found), default=0)
        found = [p for p in found if between.inside(p[0], p[2]) == best]
        return source.location(*found[0]) if found and best else None
    return _nearest(evidence, region, again, found)


def _nearest(
    evidence: Evidence, region: Region, again: Recomputation, found: Iterable[tuple[str, int, str]]
) -> SourceLocation | None:
    """Return the place that most surely ran between the two runs of a region."""
    between = RecomputeWindow(evidence, region, again)
    places = [(between.outside(file, function, line), -line, file, function)
              for file, line, function in found]  # fmt: skip
    if not places:
        return None
    _, line, filename, function = max(places)
    return source.location(filename, -line, function)


def _direction(change: StateChange) -> Direction:
    """Return whether a container grew or shrank, or an item or attribute came or went."""
    if change.change_kind in {"added", "removed"}:
        return "grew" if change.change_kind == "added" else "shrank"
    before, after = change.before_number, change.after_number
    if change.change_kind != "size" or before is None or after is None:
        return "changed"
    return "grew" if after > before else "shrank"
