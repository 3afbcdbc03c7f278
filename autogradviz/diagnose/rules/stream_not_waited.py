"""Values that one stream of an accelerator writes and another one reads without an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.stream_races import find_races
from autogradviz.diagnose.rule import Draft, NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.stream_races import Lane
    from autogradviz.diagnose.evidence.facts import Evidence

_MOST: Final = 5


@rule(
    "stream-not-waited", mechanism="order", when=NoError(), group="saved tensor", needs={"ops"},
    only_new_lines=True, at_most=_MOST,
)  # fmt: skip
def stream_not_waited(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each line that reads what another stream may not have written yet."""
    analysis = evidence.analysis
    waiting = frozenset(wait.seq for wait in analysis.device_waits)
    for race in find_races(analysis.log, analysis.ops, waiting):
        shape = f"{race.tensor.dtype} {'×'.join(map(str, race.tensor.shape))}".strip()
        yield Draft(
            title=f"{race.read_by.name} reads a tensor that another stream may not have written",
            culprit=race.read_by,
            victim=race.written_by,
            explanation=[
                f"{race.written_by.name} wrote a tensor ({shape}) on {_name(race.written_on)}:",
                race.written_by,
                f"{race.read_by.name} read it on {_name(race.read_on)}:",
                race.read_by,
                "No event and no wait of the program orders the two, so the second may "
                "run first and read old memory. Waits inside of C++ extensions are not recorded.",
            ],
            fix=_fix(race.written_on),
            evidence=[race.written_by, race.read_by],
            confidence="likely",
        )


def _name(lane: Lane) -> str:
    device, stream = lane
    return f"stream {stream} of {device}" if stream else f"the default stream of {device}"


def _fix(lane: Lane) -> str:
    return f"# before the read: torch.accelerator.current_stream().wait_stream(stream_{lane[1]})"
