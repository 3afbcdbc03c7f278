"""Which line opened or closed a context, or switched something for the whole process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.code import source
from autogradviz.diagnose.culprits.between import Between
from autogradviz.events import RegionEntered

if TYPE_CHECKING:
    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.events import EffectRepeated, StateChanged
    from autogradviz.model import Recomputation, Region, SourceLocation

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

_UNNAMED: Final = frozenset({"", "none", "on", "off", "True", "False"})
"""Positions of a switch: they name no context."""


def find_context(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    words: tuple[str, ...],
    change: StateChanged | EffectRepeated,
) -> SourceLocation | None:
    """Return the ``with`` around the region's forward that made the difference, or a setter."""
    before = change.before if change.state_kind == "context" else ""
    named = tuple(word.strip() for word in before.split(",") if word.strip() not in _UNNAMED)
    around = _around(evidence, region)
    for wanted in (named, words):
        for filename, lineno, function, text in around:
            if any(word in text for word in wanted):
                return source.location(filename, lineno, function)
    setter = _setter(evidence, region, again, words, change.after)
    if setter is not None or not around:
        return setter
    filename, lineno, function, _ = around[0]
    return source.location(filename, lineno, function)


def _around(evidence: Evidence, region: Region) -> list[tuple[str, int, str, str]]:
    """Return file, line, function and text of the ``with`` items around a region's forward."""
    entered = next(
        (e for e in evidence.model.log.of(RegionEntered) if e.region_id == region.region_id), None
    )
    return [
        (place.filename, lineno, place.function, text)
        for place in evidence.model.stack(entered.stack_id if entered is not None else None)
        if place.filename in evidence.user_files
        for lineno, text in source.enclosing_withs(place.filename, place.lineno)
    ]


def _setter(
    evidence: Evidence, region: Region, again: Recomputation, words: tuple[str, ...], after: str
) -> SourceLocation | None:
    """Return the call or assignment between the two runs that fits the state found afterwards."""
    between = Between(evidence, region, again)
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
