"""Causes of changed state: modes, random numbers, and writes that no recorded op made."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.code_run_between_events import (
    ExecutionWindow,
    RecomputeWindow,
    entered_stack,
)
from autogradviz.diagnose.blame.line_candidates import (
    REACHABLE,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.raw_memory_writes import raw_writes
from autogradviz.diagnose.source.writes_by_name_and_in_threads import writes_in_threads
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import StateChange, StateChanged


# --- lines that enter or exit a context manager, or set a global mode -----------------------------


_CONTEXT_METHODS: Final = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
SETTERS: Final = {
    "torch function modes": ("Mode", "mode"),
    "torch dispatch modes": ("Mode", "mode"),
    "attention backends": ("sdpa_kernel", "sdp_kernel", "enable_math_sdp", "enable_flash_sdp",
                           "enable_mem_efficient_sdp", "enable_cudnn_sdp"),
    "default dtype": ("set_default_dtype", "set_default_tensor_type"),
    "deterministic algorithms": ("use_deterministic_algorithms", "deterministic"),
    "float32 matmul precision": ("set_float32_matmul_precision",),
    "reduced precision": ("reduced_precision",),
    "oneDNN": ("mkldnn",),
    "cuDNN": ("cudnn",),
    "cached parametrizations": ("cached",),
    "module hooks": ("register_module", ".remove"),
}  # fmt: skip
"""Fragments of the calls that set each global mode."""


def find_context(
    window: RecomputeWindow, names: tuple[str, ...], change: StateChange
) -> SourceLocation | None:
    """Return the ``with`` around a region's forward that set a mode, or a setter in the window.

    Args:
        window: the window between forward and recomputation.
        names: fragments of the names of contexts or setters.
        change: the mode.
    """
    evidence = window.evidence
    active = change.before_names
    enclosing = _enclosing_withs(window)
    for wanted in (active, names):
        for place, text in enclosing:
            if any(word in text for word in wanted):
                return place
    bound = {name for each in (*active, *names) for name in names_bound_to(evidence, each)}
    for place, text in enclosing:
        if bound & set(re.findall(r"\w+", text)):
            return place
    setters = (_setter(window, words, change.after) for words in (names, active))
    setter = next((each for each in setters if each is not None), None)
    if setter is not None:
        return _entering_line(window, setter) or setter
    return enclosing[0][0] if enclosing else None


def _entering_line(window: RecomputeWindow, setter: SourceLocation) -> SourceLocation | None:
    """Return the line that entered the user's context manager that contains the setter."""
    evidence = window.evidence
    owner = context_name(setter.filename, setter.function)
    if not owner:
        return None
    names = (owner, *names_bound_to(evidence, owner))
    for place, text in _enclosing_withs(window):
        if any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
            return place
    return None


def names_bound_to(evidence: Evidence, class_name: str) -> tuple[str, ...]:
    """Return the names to which the user's code assigns instances of a class."""
    return tuple(
        name
        for filename in evidence.user_files
        for made, name in source.made_objects(filename)
        if made == class_name
    )


def context_name(filename: str, function: str) -> str:
    """Return the name that creates a context manager, "" if a function belongs to none."""
    owner, _, method = function.rpartition(".")
    if source.is_context_manager(filename, function):
        return method
    return owner.rpartition(".")[2] if method in _CONTEXT_METHODS else ""


def _enclosing_withs(window: RecomputeWindow) -> list[tuple[SourceLocation, str]]:
    """Return the ``with`` items around a region's forward with their text, innermost first."""
    evidence = window.evidence
    return [
        (source.location(place.filename, lineno, place.function), text)
        for place in evidence.analysis.stack(entered_stack(evidence, window.region))
        if place.filename in evidence.user_files
        for lineno, text in source.enclosing_withs(place.filename, place.lineno)
    ]


def _setter(window: RecomputeWindow, words: tuple[str, ...], after: str) -> SourceLocation | None:
    """Return the call or assignment in a window that sets the later value."""
    return best_line(
        (
            LineCandidate(
                filename,
                lineno,
                function,
                window.ran_in_window(filename, function, lineno),
                (after in text,),
            )
            for filename in window.evidence.user_files
            for lineno, function, text in source.mentions(filename, words)
            if function.rpartition(".")[2] != "__init__"
        ),
        at_least=0,
    )


# --- python numpy random --------------------------------------------------------------------------
#
# Calls that draw random numbers from Python's or NumPy's generator, which checkpoint ignores.


def find_random_call(window: RecomputeWindow, change: StateChanged) -> SourceLocation | None:
    """Return the call in the region's own code that draws random numbers."""
    again = window.recomputation
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    ops = [op for op in ((pair.forward, pair.recompute) if pair else ()) if op is not None]
    near = min((op.location.lineno for op in ops if op.location is not None), default=0)
    return best_line(
        LineCandidate(
            filename,
            lineno,
            function,
            window.ran_in_region(filename, function),
            (-abs(near - lineno),),
        )
        for filename in window.evidence.user_files
        for lineno, function in _random_calls(filename, change.state_name)
    )


def _random_calls(filename: str, generator: str) -> list[tuple[int, str]]:
    modules = ("random",) if generator == "python random" else ("numpy.random", "np.random")
    names = source.imported(filename, modules[0]) | _aliases_of(filename, modules)
    modules = (*modules, *sorted(names))
    return [
        (lineno, function)
        for lineno, function, called in source.calls(filename, ("",))
        if called in names or called.startswith(tuple(f"{module}." for module in modules))
    ]


def _aliases_of(filename: str, modules: tuple[str, ...]) -> frozenset[str]:
    """Return the names that a file gives to modules, or to functions in them.

    ``import random as rnd``, ``from numpy import random as npr``, ``self.draw = random.random``.
    """
    found = set()
    for _, node in source.nodes(filename):
        if isinstance(node, ast.Import):
            found |= {part.asname for part in node.names if part.name in modules}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                part.asname or part.name
                for part in node.names
                if f"{node.module}.{part.name}" in modules
            }
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
            text = f"{ast.unparse(node.value)}."
            if text.startswith(tuple(f"{module}." for module in modules)):
                found |= {ast.unparse(target) for target in node.targets}
    return frozenset(name for name in found if name)


# --- writes that no recorded op made: through raw memory, or in another thread --------------------


def memory_write(
    evidence: Evidence, window: ExecutionWindow | None = None
) -> SourceLocation | None:
    """Return a line in the user's source that writes memory without an op.

    Args:
        evidence: the recording.
        window: prefer the line that most probably ran in this window.
    """
    for filename in evidence.user_files:
        found = raw_writes(filename)
        if window is not None:  # the sort is stable
            found.sort(key=lambda place: -window.ran_in_window(filename, place[1], place[0]))
        if found:
            return source.location(filename, *found[0])
    return None


def thread_write(evidence: Evidence) -> SourceLocation | None:
    """Return a line in the user's source that writes in place in a thread of its own."""
    found = ((name, *place) for name in evidence.user_files for place in writes_in_threads(name))
    place = next(found, None)
    return source.location(*place) if place is not None else None


def unrecorded_write(evidence: Evidence) -> SourceLocation | None:
    """Return a line that writes in a thread, else one that writes memory without an op."""
    return thread_write(evidence) or memory_write(evidence)


def window_until_read(evidence: Evidence, op: Op | None, read_seq: int) -> ExecutionWindow:
    """Return the window between an op that saved a tensor and the backward that read it."""
    started = [e for e in evidence.analysis.log.of(BackwardStarted) if e.seq < read_seq]
    return ExecutionWindow(
        evidence,
        op.stack_id if op is not None else None,
        started[-1].stack_id if started else None,
    )


def write_before_read(evidence: Evidence, op: Op | None, read_seq: int) -> SourceLocation | None:
    """Return a source line that may have written between an op and a read of its tensor."""
    return memory_write(evidence, window_until_read(evidence, op, read_seq)) or thread_write(
        evidence
    )


def ran_before_read(
    evidence: Evidence, op: Op | None, read_seq: int, line: SourceLocation | None
) -> bool:
    """Return whether the source shows that a line ran between a save and its read."""
    if line is None:
        return True
    window = window_until_read(evidence, op, read_seq)
    return window.ran_in_window(line.filename, line.function, line.lineno) >= REACHABLE
