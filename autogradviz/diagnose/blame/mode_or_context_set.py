"""Lines that enter or exit a context manager, or set a global mode."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.code_run_between import RecomputeWindow, entered_stack
from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import StateChange

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
