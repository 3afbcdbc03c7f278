"""Which line changed what surrounds a checkpointed region."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose import source
from autogradviz.events import RegionEntered

if TYPE_CHECKING:
    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.events import StateChanged
    from autogradviz.model import Recomputation, Region, SourceLocation

_SETTERS: Final = {
    "torch function modes": ("Mode", "mode"),
    "attention backends": ("sdpa_kernel", "sdp_kernel", "enable_math_sdp", "enable_flash_sdp",
                           "enable_mem_efficient_sdp", "enable_cudnn_sdp"),
    "default dtype": ("set_default_dtype",),
    "deterministic algorithms": ("use_deterministic_algorithms", "deterministic"),
    "float32 matmul precision": ("set_float32_matmul_precision",),
    "python random": ("random.",),
    "numpy random": ("np.random", "numpy.random", "rng."),
}  # fmt: skip
_CONTEXT_FUNCTIONS: Final = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})


def base_name(name: str) -> str:
    """Return "cache.keys" of "cache.keys[1]"."""
    return re.sub(r"\[.*", "", name)


def attribute_name(change: StateChanged) -> str:
    """Return "keys" of "cache.keys[1]"."""
    return base_name(change.state_name).rpartition(".")[2]


def find_culprit(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChanged
) -> SourceLocation | None:
    """Return the line that made a difference: seen while recording, else read in the source."""
    if change.stack_id is not None:
        return evidence.model.location(change.stack_id)
    if change.state_kind == "object":
        return _writer(evidence, region, change)
    if change.state_kind == "random":
        return find_draw(evidence, region, again, change)
    return _context(evidence, region, _SETTERS[change.state_name], change.before)


def _executed(evidence: Evidence, region: Region) -> set[tuple[str, str]]:
    """Return the files and functions that the region's forward ran through."""
    return {
        (place.filename, place.function)
        for op in region.ops
        for place in evidence.model.stack(op.stack_id)
    }


def _writer(evidence: Evidence, region: Region, change: StateChanged) -> SourceLocation | None:
    """Return the statement that writes what changed, by name, direction and place."""
    executed = _executed(evidence, region)
    if _only_requires_grad(change):
        return _toggle(evidence)
    wanted = _direction(change)
    candidates = [
        (filename, write)
        for filename in evidence.user_files
        for write in source.writes(filename, attribute_name(change))
        if write.function and write.function.rpartition(".")[2] != "__init__"
    ]
    if not candidates:
        return None

    def score(candidate: tuple[str, source.Write]) -> tuple[int, int, int]:
        filename, write = candidate
        ran = (filename, write.function) in executed
        return (
            2 * (write.direction == wanted) + (write.direction == "changed"),
            int(ran == change.in_forward),
            -write.lineno,
        )

    filename, write = max(candidates, key=score)
    method = write.function.rpartition(".")[2]
    generator = source.is_generator(filename, write.function)
    if (method in _CONTEXT_FUNCTIONS or generator) and not change.in_forward:
        owner = method if generator else write.function.split(".")[0]
        return _context(evidence, region, (owner,), "") or source.location(
            filename, write.lineno, write.function
        )
    return source.location(filename, write.lineno, write.function)


def _only_requires_grad(change: StateChanged) -> bool:
    flag = ", requires grad"
    return change.before != change.after and (
        change.before.removesuffix(flag) == change.after.removesuffix(flag)
    )


def _toggle(evidence: Evidence) -> SourceLocation | None:
    """Return the first line that switches a tensor's requires_grad."""
    for filename in evidence.user_files:
        found = [
            (lineno, function)
            for lineno, function, _ in source.calls(filename, ("requires_grad_",))
        ]
        found += [(w.lineno, w.function) for w in source.writes(filename, "requires_grad")]
        outside = [place for place in found if place[1].rpartition(".")[2] != "__init__"]
        if outside:
            return source.location(filename, *min(outside))
    return None


def _direction(change: StateChanged) -> source.Direction:
    sizes = [re.fullmatch(r"len (\d+)", text) for text in (change.before, change.after)]
    if "[" in change.state_name:
        return "grew" if change.before == "absent" else "shrank"
    if sizes[0] is None or sizes[1] is None:
        return "changed"
    return "grew" if int(sizes[1][1]) > int(sizes[0][1]) else "shrank"


def find_draw(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChanged
) -> SourceLocation | None:
    """Return the call in the region's own code that draws the random numbers."""
    executed = _executed(evidence, region)
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    ops = [op for op in ((pair.forward, pair.recompute) if pair else ()) if op is not None]
    parted = [op.location.lineno for op in ops if op.location is not None]
    found = [
        (filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function, _ in source.calls(filename, _SETTERS[change.state_name])
        if (filename, function) in executed or _same_class(function, executed)
    ]
    if not found:
        return None
    near = min(parted, default=0)
    filename, lineno, function = min(found, key=lambda place: abs(near - place[1]))
    return source.location(filename, lineno, function)


def _same_class(function: str, executed: set[tuple[str, str]]) -> bool:
    owner = function.rpartition(".")[0]
    return bool(owner) and any(other.startswith(f"{owner}.") for _, other in executed)


def _context(
    evidence: Evidence, region: Region, words: tuple[str, ...], before: str
) -> SourceLocation | None:
    """Return the ``with`` around the region's forward that made the difference, or a setter."""
    entered = next(
        (e for e in evidence.model.log.of(RegionEntered) if e.region_id == region.region_id), None
    )
    named = tuple(word.strip() for word in before.split(",") if word.strip() not in {"", "none"})
    around: list[tuple[str, int, str, str]] = []
    for place in evidence.model.stack(entered.stack_id if entered is not None else None):
        if place.filename in evidence.user_files:
            around += [
                (place.filename, lineno, place.function, text)
                for lineno, text in source.enclosing_withs(place.filename, place.lineno)
            ]
    for wanted in (named, words):
        for filename, lineno, function, text in around:
            if any(word in text for word in wanted):
                return source.location(filename, lineno, function)
    for filename in evidence.user_files:
        for lineno, function, called in source.calls(filename, words):
            if not called.endswith("Mode"):
                return source.location(filename, lineno, function)
    if around:
        filename, lineno, function, _ = around[0]
        return source.location(filename, lineno, function)
    return None
