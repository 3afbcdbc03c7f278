"""Which line opened or closed a context, or switched something for the whole process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.lazy_init import names_bound_to
from autogradviz.diagnose.blame.window import RecomputeWindow, entered_stack
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import StateChange

_CONTEXT_FUNCTIONS: Final = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
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


def find_context(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    words: tuple[str, ...],
    change: StateChange,
) -> SourceLocation | None:
    """Return the ``with`` around the region's forward that made the difference, or a setter."""
    named = change.before_names
    around = _around(evidence, region)
    for wanted in (named, words):
        for filename, lineno, function, text in around:
            if any(word in text for word in wanted):
                return source.location(filename, lineno, function)
    held = {name for each in (*named, *words) for name in names_bound_to(evidence, each)}
    for filename, lineno, function, text in around:
        if held & set(re.findall(r"\w+", text)):
            return source.location(filename, lineno, function)
    setters = (_setter(evidence, region, again, each, change.after) for each in (words, named))
    setter = next((each for each in setters if each is not None), None)
    if setter is not None:
        return _opened(evidence, region, setter) or setter
    if not around:
        return None
    filename, lineno, function, _ = around[0]
    return source.location(filename, lineno, function)


def _opened(evidence: Evidence, region: Region, setter: SourceLocation) -> SourceLocation | None:
    """Return the line that opened a context around a region, where its own code is the setter."""
    owner = context_name(setter.filename, setter.function)
    names = (owner, *names_bound_to(evidence, owner)) if owner else ()
    for filename, lineno, function, text in _around(evidence, region) if names else ():
        if any(re.search(rf"\b{re.escape(name)}\b", text) for name in names):
            return source.location(filename, lineno, function)
    for place in evidence.analysis.stack(entered_stack(evidence, region)) if names else ():
        for filename, lineno, function in _enters(place.filename, place.function, names):
            if lineno < place.lineno and filename in evidence.user_files:
                return source.location(filename, lineno, function)
    return None


def _enters(filename: str, function: str, names: tuple[str, ...]) -> list[tuple[str, int, str]]:
    """Return the calls in a function that enter one of some contexts, or make it."""
    return [
        (filename, lineno, inner)
        for lineno, inner, text in source.mentions(filename, names)
        if inner == function.replace("<module>", "") and re.search(r"\(", text)
    ]


def context_name(filename: str, function: str) -> str:
    """Return the name by which a context manager is made, "" where a function is of none."""
    owner, _, method = function.rpartition(".")
    if source.is_context_manager(filename, function):
        return method
    return owner.rpartition(".")[2] if method in _CONTEXT_FUNCTIONS else ""


def _around(evidence: Evidence, region: Region) -> list[tuple[str, int, str, str]]:
    """Return file, line, function and text of the ``with`` items around a region's forward."""
    return [
        (place.filename, lineno, place.function, text)
        for place in evidence.analysis.stack(entered_stack(evidence, region))
        if place.filename in evidence.user_files
        for lineno, text in source.enclosing_withs(place.filename, place.lineno)
    ]


def _setter(
    evidence: Evidence, region: Region, again: Recomputation, words: tuple[str, ...], after: str
) -> SourceLocation | None:
    """Return the call or assignment between the two runs that fits the state found afterwards."""
    between = RecomputeWindow(evidence, region, again)
    found = [
        (between.outside(filename, function, lineno), after in text, -lineno, filename, function)
        for filename in evidence.user_files
        for lineno, function, text in source.mentions(filename, words)
        if function.rpartition(".")[2] != "__init__"
    ]
    if not found:
        return None
    _, _, lineno, filename, function = max(found)
    return source.location(filename, -lineno, function)
