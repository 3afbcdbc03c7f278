"""Rules: lines at which the host waits for an accelerator."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.rule import Draft, NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import DeviceWait, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


_FEW: Final = 2
"""Values outside of modules and backward that a line may read in a step: a loss, and a norm."""

_MOST_LINES: Final = 3
"""Findings of this kind."""


@rule(
    "device-waited",
    mechanism="cost",
    when=NoError(),
    group="waste",
    after="selective_policy_never_met",
    needs={"ops"},
    at_most=_MOST_LINES,
)
def device_waited(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each line that makes the host wait inside modules, or many times a step."""
    steps = max(1, len(evidence.analysis.steps.ended))
    by_line: dict[SourceLocation, list[DeviceWait]] = defaultdict(list)
    for wait in evidence.analysis.device_waits:
        if wait.location is not None:
            by_line[wait.location].append(wait)
    found = [waits for waits in by_line.values() if _is_reported(waits, steps)]
    for waits in sorted(found, key=len, reverse=True):
        yield _device_wait(waits, steps)


def _is_reported(waits: Sequence[DeviceWait], steps: int) -> bool:
    """Return whether a line waits where the device has work to come.

    Copies outside of modules load data or write checkpoints.
    """
    inside = any(wait.in_call for wait in waits)
    reads = sum(not wait.reason.startswith("copies") for wait in waits)
    return inside or reads > _FEW * steps


def _device_wait(waits: Sequence[DeviceWait], steps: int) -> Draft:
    first = waits[0]
    often = "once" if len(waits) == 1 else f"{len(waits)} times"
    within = f" in {steps} steps" if steps > 1 else ""
    spent = f"{sum(wait.duration_ns for wait in waits) / 1e6:.1f} ms"
    kinds = sorted({f"{wait.name} {wait.reason}" for wait in waits})
    return Draft(
        title=f"The host waits for {first.device} at this line, {often}{within}",
        culprit=first.location,
        victim=None,
        explanation=[
            f"{'; '.join(kinds)}. The host waits until {first.device} has done all work that was "
            "submitted before:",
            first.location,
            "Meanwhile it submits nothing, so that the device then has nothing to do until the "
            f"host has caught up. These calls took {spent} on the host.",
        ],
        fix=_fix_of_wait(first),
        evidence=[wait.seq for wait in waits[:20]],
        confidence="hint",
    )


def _fix_of_wait(wait: DeviceWait) -> str:
    if wait.reason.startswith("copies to the device"):
        return "# copy from pinned memory with non_blocking=True, before the model runs"
    if wait.reason.startswith("copies"):
        return "# keep the tensor on its device, or copy it once at the end of the step"
    if wait.reason == "reads a number":
        return "# keep the value in a tensor: torch.where(condition, a, b) instead of if"
    return "# keep the size: torch.where(mask, x, 0) instead of x[mask]"
