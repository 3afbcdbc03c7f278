"""Causes of a difference between forward and recomputation."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import is_length, state_texts
from autogradviz.analysis.writes_between_states import texts_of_change
from autogradviz.diagnose.blame.code_run_between_events import RecomputeWindow
from autogradviz.diagnose.blame.find_line_that_changed_state import (
    find_culprit,
    find_thread_dispatch,
    other_thread,
)
from autogradviz.diagnose.blame.line_candidates import (
    REACHABLE,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.blame.modes_random_numbers_and_hidden_writes import find_random_call
from autogradviz.diagnose.blame.recompute_difference_cause_record import Cause
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
from autogradviz.diagnose.blame.tensors_replaced_or_overwritten import (
    find_data_reassignment_in_region,
    find_overwritten_input,
)
from autogradviz.diagnose.evidence.recompute_value_diff import first_value_mismatch
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import line_number_or_place, short_location
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.regions_repaired_as_fixes import (
    kept_open,
    moved_below,
    with_equal_contexts,
    without_cache,
)
from autogradviz.diagnose.source.statements_rewritten_as_fixes import with_torch_random
from autogradviz.diagnose.source.writes_by_name_and_in_threads import Write, writes
from autogradviz.event_log.stacks import line_of_file
from autogradviz.events import CompileStarted, FrameSeen, ModeChanged, StateChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Recomputation, Region
    from autogradviz.analysis.compiled_region_types import Recompile
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- find why a recomputation differed: the state that changed, and the line that changed it ------


MAX_VALUES: Final = 24  # characters of two values in a title

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
    return replace(_cause_of(window, changes[0], changes[1:], culprit), victim=region.location)


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
    cause = _cause_of(window, best, others, culprit)
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
    window: RecomputeWindow,
    best: StateChanged,
    others: list[StateChanged],
    culprit: SourceLocation | None,
) -> Cause:
    evidence = window.evidence
    in_thread = other_thread(evidence, best)
    repaired = _FOR_THREADS if in_thread else _repaired(window, best, culprit)
    return Cause(
        slug=_slug(best),
        title=_title(window, best, culprit),
        culprit=culprit,
        lines=(
            _difference(evidence, best),
            _writer_sentence(evidence, best, culprit),
            *[
                f"  also {c.state_name}: {' → '.join(texts_of_change(evidence.analysis, c))}"
                for c in others[:4]
            ],
            *_threads(evidence, best),
            *([_advice(best)] if repaired and not in_thread else []),
        ),
        fix=repaired or _advice(best),
        confidence="certain" if best.stack_id is not None else "likely",
        events=(best.seq,),
    )


def _difference(evidence: Evidence, best: StateChanged) -> str:
    """Return a sentence about the state; of a random one, its number says nothing."""
    if best.value_kind == "rng" and best.change_kind != "added":
        values = "was in another state when recomputation started"
    elif _same_value(best):
        before, after = texts_of_change(evidence.analysis, best)
        how = after.removeprefix(before).removeprefix(", ") or "another object"
        verb = "had been" if how.startswith("written") else "was"
        values = f"({before}) {verb} {how} when recomputation started"
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


def _title(window: RecomputeWindow, change: StateChanged, culprit: SourceLocation | None) -> str:
    name = _display_name(change)
    if change.value_kind == "rng" and change.change_kind != "added":
        return f"{name} was in another state in recomputation"
    before, after = state_texts(change.before, change.after)
    in_thread = other_thread(window.evidence, change) is not None
    if culprit is not None and change.state_kind == "object" and not in_thread:
        values = f" from {before} to {after}"
        if len(values) > MAX_VALUES or change.in_forward or _verb(change) != "changed":
            values = ""
        place = line_number_or_place(culprit, window.region.location)
        return f"{name} was {_verb(change)}{values} by {place}"
    if change.value_kind == "array" and change.change_kind == "content":
        return f"{name} held other values in recomputation"
    if change.in_forward or _same_value(change):
        when = "in forward" if change.in_forward else "after forward"
        return f"{name} was {_verb(change)} {when}"
    return f"{name} {_before(change)} in forward, {after} in recomputation"


def _verb(change: StateChanged) -> str:
    """Return the participle of the change of a state."""
    if change.before in {"None", "absent"}:
        return "set"
    if change.after == "absent":
        return "removed"
    return {"version": "written", "identity": "replaced"}.get(change.change_kind, "changed")


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


def _repaired(window: RecomputeWindow, change: StateChanged, culprit: SourceLocation | None) -> str:
    """Return the program's statements, changed so that a state is the same in both runs.

    It is "" if none are known that leave all else as it is.
    """
    backward = window.evidence.backward_line(window.recomputation.backward_id)
    if change.state_kind == "random":
        drawn = with_torch_random(culprit)
        if drawn is not None:
            return f"{drawn}\n# checkpoint restores the random state of torch"
    elif change.state_kind == "context":
        kept = kept_open(culprit, backward)
        if kept:
            return kept
    return "" if change.in_forward else moved_below(culprit, backward)


def _advice(change: StateChanged) -> str:
    """Return a sentence on how a state can be the same in both runs."""
    tail = _display_name(change)
    if change.state_kind == "random":
        return (
            "Draw with torch, whose random state checkpoint restores, or draw before the region "
            "and pass the result in as an argument."
        )
    if change.state_kind == "context":
        return (
            "Keep the context open until backward() has run, or enter it inside the checkpointed "
            "function, so that recomputation enters it too."
        )
    if change.state_path[-1] == "training":
        return "Call train() or eval() after backward(), or evaluate copy.deepcopy(model)."
    if attribute_name(change.state_path).endswith("_hooks"):
        return f"Do not change {tail} in the region, or before backward() has run."
    if not change.in_forward:
        return f"Do not change {tail} until backward() has run."
    return (
        f"Draw from {tail} before the region, and pass the result in as an argument: checkpoint "
        "restores only the random state of torch's default generators."
        if change.value_kind == "rng"
        else f"A checkpointed region runs twice: keep {tail} out of it, pass its value in as an "
        "argument, or write it outside the region."
    )


# --- cause without state change -------------------------------------------------------------------
#
# Causes of a different recomputation that no recorded state shows: clocks, iterators, files.


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


_CALLED_BEFORE: Final = "Call it before the region, and pass the result in as an argument."


def _non_repeatable_call(window: RecomputeWindow) -> Cause | None:
    """Return the region's call of a clock, an iterator or a file as the cause."""
    culprit = window.best_line_of_region(
        (filename, lineno, function)
        for filename in window.evidence.user_files
        for lineno, function, called in source.calls(filename, ("",))
        if _is_non_repeatable(filename, called)
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
        fix=_CALLED_BEFORE,
        confidence="likely",
        events=(),
    )


def _file_write(window: RecomputeWindow, read: SourceLocation) -> SourceLocation | None:
    """Return the line in the window that wrote a file, if the region's line reads one."""
    if not any(word in read.text for word in _READS):
        return None
    return window.best_line(
        (
            (filename, line, function)
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
    culprit = window.best_line_of_region(
        (filename, lineno, function)
        for filename in window.evidence.user_files
        for lineno, function, _ in source.calls(filename, ("is_grad_enabled",))
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


# --- A ``context_fn`` that returns different contexts for forward and recomputation ---------------


_CONTEXTS: Final = re.compile(
    r"autocast|context|ctx|no_grad|mode|kernel|guard|policy", re.IGNORECASE
)


def find_unequal_contexts(window: RecomputeWindow) -> Cause | None:
    """Return the line that creates different contexts for the two runs of a region."""
    evidence, region = window.evidence, window.region
    if any(op.policy for op in region.ops):  # selective checkpoint: two modes of one policy
        return None
    culprit = next(_unequal_pairs(evidence), None) if _has_context_fn(region) else None
    if culprit is None:
        return None
    return Cause(
        slug="checkpoint-context-missing",
        title="context_fn returned different contexts for its two runs",
        culprit=culprit,
        lines=(
            "No recorded state differs between the two runs. The region has a context_fn: the "
            "first context is for forward, the second for recomputation. They are created at "
            f"{short_location(culprit)}:",
            f"        {culprit.text}",
        ),
        fix=with_equal_contexts(culprit)
        or "# give both runs the same context:\nreturn make_context(), make_context()",
        confidence="likely",
        events=(),
    )


def _has_context_fn(region: Region) -> bool:
    """Return whether the call of ``checkpoint`` passes, or may pass, ``context_fn``."""
    place = region.location
    return place is not None and any(
        word.arg in {"context_fn", None}
        for call in source.calls_at(place.filename, place.lineno)
        for word in call.keywords
    )


def _unequal_pairs(evidence: Evidence) -> Iterator[SourceLocation]:
    """Yield the lines at which a user function returns two different contexts."""
    for filename in evidence.user_files:
        for function, owner in source.functions(filename):
            for node in source.own_nodes(owner):
                if isinstance(node, (ast.Return, ast.Lambda)) and _is_unequal(_returned(node)):
                    yield source.location(filename, node.lineno, function)


def _returned(node: ast.Return | ast.Lambda) -> ast.expr | None:
    return node.body if isinstance(node, ast.Lambda) else node.value


def _is_unequal(value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Tuple) or len(value.elts) != 2:  # noqa: PLR2004
        return False
    first, second = (ast.unparse(part) for part in value.elts)
    calls = [ast.unparse(part.func) for part in value.elts if isinstance(part, ast.Call)]
    return first != second and any(_CONTEXTS.search(called) for called in calls)


# --- branches of a region that depend on a counter ------------------------------------------------


def find_counter_branch(window: RecomputeWindow, name: str) -> SourceLocation | None:
    """Return the first branch in a region's code that a counter decides and that computes.

    A branch that only calls a function (logs, saves) changes no result. A comparison with zero
    ("the first time") gives the same answer in every later call.
    """
    return best_line(
        LineCandidate(filename, node.lineno, function, certainty=1)
        for filename in {filename for filename, _ in window.executed}
        for function, node in source.nodes(filename)
        if isinstance(node, (ast.If, ast.IfExp))
        and function
        and window.ran_in_region(filename, function)
        and _tests_count(node.test, name)
        and _computes(node)
    )


def _tests_count(test: ast.expr, name: str) -> bool:
    """Return whether a test takes a remainder of a count, or compares it with a nonzero value."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            if _mentions(node.left, name):
                return True
        elif isinstance(node, ast.Compare) and _mentions(node, name):
            others = [part for part in (node.left, *node.comparators) if not _mentions(part, name)]
            if not all(isinstance(part, ast.Constant) and not part.value for part in others):
                return True
    return False


def _computes(node: ast.If | ast.IfExp) -> bool:
    if isinstance(node, ast.IfExp):
        return True
    inner = [part for each in (*node.body, *node.orelse) for part in ast.walk(each)]
    return any(isinstance(part, (ast.Return, ast.Assign, ast.AugAssign)) for part in inner)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(source.is_named(part, name) for part in ast.walk(node))


# --- autocast's cache contained a weight's cast in forward, and not in recomputation --------------


_CAST: Final = "_to_copy"


def find_cached_cast(window: RecomputeWindow) -> Cause | None:
    """Return the autocast context whose cache made a region's forward skip a cast."""
    evidence, region = window.evidence, window.region
    entered = _autocast_entered(window)
    if entered is None or not _casts_in_recomputation(window):
        return None
    casts = {
        storage_id: op
        for op in _casts(evidence, entered.seq, region.entered_seq)
        for storage_id in storages(op.outputs)
    }
    reader = next((op for op in region.ops if storages(op.inputs) & casts.keys()), None)
    if reader is None:
        return None
    cast = casts[min(storages(reader.inputs) & casts.keys())]
    culprit = evidence.analysis.location(entered.stack_id)
    return Cause(
        slug="checkpoint-context-missing",
        title="autocast's cache held a weight's cast in forward, and not in recomputation",
        culprit=culprit,
        lines=(
            f"Autocast caches the casts of weights until it is exited; it was entered at "
            f"{short_location(culprit)}:",
            f"        {culprit.text if culprit is not None else ''}",
            f"A weight was cast at {short_location(cast.location)} before the region started, so "
            f"the forward took the cast from the cache, at {short_location(reader.location)}. The "
            "recomputation enters autocast again, with an empty cache, and casts the weight.",
        ),
        fix=without_cache(culprit)
        or "torch.autocast(device_type, dtype=dtype, cache_enabled=False)",
        confidence="likely",
        events=(entered.seq, cast.seq, reader.seq),
        victim=reader.location,
    )


def _autocast_entered(window: RecomputeWindow) -> ModeChanged | None:
    """Return the last change of autocast before a region, None if that turned it off."""
    changes = [
        event
        for event in window.evidence.analysis.log.of(ModeChanged)
        if event.mode == "autocast" and event.seq < window.region.entered_seq
    ]
    last = changes[-1] if changes else None
    return last if last is not None and last.after != "off" else None


def _casts_in_recomputation(window: RecomputeWindow) -> bool:
    """Return whether the recomputation ran a cast that the forward did not."""
    error = window.evidence.analysis.error
    refused = error is not None and "not found in storage" in error.message
    if refused and error is not None and _CAST in error.message:
        return True
    return any(
        pair.status == "added" and pair.recompute is not None and pair.recompute.name == _CAST
        for pair in window.recomputation.pairs
    )


def _casts(evidence: Evidence, after: int, before: int) -> list[Op]:
    return [op for op in evidence.analysis.ops if op.name == _CAST and after < op.seq < before]


# --- the line that changed a value which a guard of Dynamo compares -------------------------------


_COMPARED: Final = re.compile(r"^(?P<name>[\w.\[\]'\"()]+?) (?:==|is|!=|in|not in|<|>)")
_TENSOR: Final = re.compile(r"^tensor '(?P<name>[^']+)'")
_SWITCHES: Final = (".eval", ".train")
_SWITCH_CALL: Final = re.compile(r"\.(?:eval|train)\((?:mode=)?(?:\w+)?\)$")
_LENGTH: Final = re.compile(r"^len\((?P<name>[^()]+)\)")


def guarded_name(guard: str) -> str:
    """Return the variable that a guard compares, "self.scale"; "" if it is not one."""
    for pattern in (_TENSOR, _LENGTH, _COMPARED):
        found = pattern.match(guard)
        if found is not None:
            return found["name"]
    return ""


def find_guard_writer(evidence: Evidence, recompile: Recompile) -> SourceLocation | None:
    """Return the line that changed the value of a guard, from the source; None without one.

    Lines of the functions that called the compiled one come first: of these the last before the
    call, or the last of all in a loop. Constructors are left out.
    """
    name, key = _name_and_key(guarded_name(recompile.guard))
    callers = _callers(evidence, recompile)
    found = []
    for filename in evidence.user_files if name else ():
        for write in (*writes(filename, name), *_mode_switches(filename, name)):
            if write.function.rpartition(".")[2] == "__init__":
                continue
            if key is not None and write.key is not None and key not in write.key:
                continue
            called = callers.get((filename, write.function))
            rank = (
                called is None,
                write.indirect,
                called is not None and write.lineno > called,
                -write.lineno,
            )
            found.append((rank, filename, write.lineno, write.function))
    if not found:
        return None
    _, filename, lineno, function = min(found)
    return _location(evidence, filename, lineno, function)


def _mode_switches(filename: str, name: str) -> list[Write]:
    """Return the calls of ``eval`` and ``train``, which write the attribute ``training``."""
    return [
        Write(lineno, function, "changed", indirect=True)
        for lineno, function, text in source.mentions(filename, _SWITCHES)
        if name == "training" and _SWITCH_CALL.search(text)
    ]


def _callers(evidence: Evidence, recompile: Recompile) -> dict[tuple[str, str], int]:
    """Return the lines of the functions whose call made Dynamo compile, by file and function."""
    for event in evidence.analysis.log.of(CompileStarted):
        if event.compile_id == recompile.compile_id:
            stack = evidence.analysis.stack(event.stack_id)
            return {(each.filename, each.function): each.lineno for each in reversed(stack)}
    return {}


def _name_and_key(name: str) -> tuple[str, str | None]:
    """Return the last attribute or variable of an expression, and the key that is read from it."""
    if not name.endswith("]"):
        return name.rpartition(".")[2], None
    plain, _, key = name.rpartition("[")
    return plain.rpartition(".")[2], key.rstrip("]").strip("'\"")


def _location(evidence: Evidence, filename: str, lineno: int, function: str) -> SourceLocation:
    return line_of_file(filename, lineno, function, cell=evidence.analysis.cells.get(filename))
