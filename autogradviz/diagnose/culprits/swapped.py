"""Which line gave a tensor other memory, or another type: ``.data = ...``, ``.half()``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.code import source
from autogradviz.diagnose.culprits.between import CALLED, Between
from autogradviz.diagnose.culprits.cause import Cause
from autogradviz.diagnose.wording import short

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.events import EffectRepeated, StateChanged
    from autogradviz.model import Recomputation, Region, SourceLocation

_TENSOR: Final = re.compile(r"\w+ (\d+(×\d+)*|scalar) ")
_SWAPS: Final = (
    ".data",
    ".set_",
    ".resize_",
    ".half",
    ".double",
    ".bfloat16",
    ".to_empty",
    ".cuda",
)
_CASTS: Final = (".to", ".float", ".cpu", ".type", "._apply")
_POSITION: Final = re.compile(r"tensor at position (\d+)")


def find_swap(
    evidence: Evidence, between: Between, change: StateChanged | EffectRepeated
) -> SourceLocation | None:
    """Return the line between a region's two runs that gave a tensor other memory or type."""
    if not all(_TENSOR.match(text) for text in (change.before, change.after)):
        return None
    return _best(evidence, between.outside, CALLED)


def find_swapped_inside(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return why a saved tensor has another shape at the end of a run than when it was saved.

    A tensor that requires no gradient is kept as it is: what gives it other memory changes what
    checkpoint compares.
    """
    error = evidence.model.error
    if error is None or "have different metadata" not in error.message or _differ(region, again):
        return None
    between = Between(evidence, region, again)
    culprit = _best(evidence, lambda filename, function, _: between.inside(filename, function), 1)
    found = _POSITION.search(error.message)
    place = int(found[1]) if found is not None else len(region.saved)
    if culprit is None:
        return None
    return Cause(
        slug="checkpoint-state-changed",
        title="a tensor that it had saved was given other memory before the run was over",
        culprit=culprit,
        lines=(
            "Both runs saved tensors of the same shapes; when checkpoint compared them, one had "
            f"another shape already. The region gives a tensor other memory at {short(culprit)}:",
            f"        {culprit.text}",
            "Tensors that require no gradient are not copied: they change with their memory.",
        ),
        fix="# keep the memory until backward has run: do not release it while a backward runs\n"
        "if torch._C._current_graph_task_id() == -1:\n    ...  # release",
        confidence="likely",
        events=(),
        victim=region.saved[place].location if place < len(region.saved) else None,
    )


def _differ(region: Region, again: Recomputation) -> bool:
    pairs = zip(region.saved, again.saved, strict=False)
    return any(
        (a.tensor.shape, a.tensor.dtype) != (b.tensor.shape, b.tensor.dtype) for a, b in pairs
    )


def _best(
    evidence: Evidence, weigh: Callable[[str, str, int], int], least: int
) -> SourceLocation | None:
    found = [
        (weigh(filename, function, line), strength, -line, filename, function)
        for filename in evidence.user_files
        for strength, words in ((2, _SWAPS), (1, _CASTS))
        for line, function, text in source.mentions(filename, words)
        if re.search(rf"({'|'.join(map(re.escape, words))})(\(| = )", text)
    ]
    best = max(found, default=None)
    if best is None or best[0] < least:
        return None
    return source.location(best[3], -best[2], best[4])
