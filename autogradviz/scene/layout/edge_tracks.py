"""Tracks: the heights at which lines run sideways between two rows.

``assets/viewer/layout/edge_tracks.js`` does the same sums in the same order.
"""

from __future__ import annotations

from math import floor
from typing import Final, TypeAlias

TRACK_PITCH: Final = 8.0
TRACKS_HEIGHT: Final = 96.0
"""All tracks of a gap together are at most this high: many lines move closer."""

CLEARANCE: Final = 8.0
"""Between two pieces on one track."""

Step: TypeAlias = tuple[float, float, int, int]
"""x above and x below; whose step it is (a link, and where on its path)."""


def assign_tracks(steps: list[Step]) -> tuple[list[int], float]:
    """Return each step's track, 0 on top, and the distance between two tracks.

    Steps that go up to the right lie the higher, the further left they begin; those that go up
    to the left the other way round. So steps of one direction never cross each other. Which
    direction lies on top depends on where a line comes down to where another begins: the first
    has to leave before.
    """
    tracks = [0] * len(steps)
    to_right = sorted(i for i, (upper, lower, _, _) in enumerate(steps) if upper > lower)
    to_left = sorted(i for i, (upper, lower, _, _) in enumerate(steps) if upper <= lower)
    top, bottom, sign = to_right, to_left, 1
    if _clashes(steps, to_left, to_right) > _clashes(steps, to_right, to_left):
        top, bottom, sign = to_left, to_right, -1
    count = _stack(steps, top, sign, 0, tracks)
    first = 0 if _apart(steps, to_right, to_left) else count
    count = max(count, _stack(steps, bottom, -sign, first, tracks))
    pitch = TRACK_PITCH if count < 2 else min(TRACK_PITCH, TRACKS_HEIGHT / (count - 1))  # noqa: PLR2004  one distance needs two
    return tracks, pitch


def _clashes(steps: list[Step], lower: list[int], upper: list[int]) -> int:
    """Return how many steps of ``upper`` begin where one of ``lower`` comes down from above."""
    places = {floor(steps[i][0] + 0.5) for i in lower}
    return sum(floor(steps[i][1] + 0.5) in places for i in upper)


def _stack(steps: list[Step], chosen: list[int], sign: int, first: int, tracks: list[int]) -> int:
    """Give the chosen steps tracks from ``first`` on; return the first track left free."""
    ends: list[float] = []  # how far each track is taken
    for i in sorted(chosen, key=lambda i: (sign * steps[i][1], sign * steps[i][0], i)):
        begin, end = sign * steps[i][1], sign * steps[i][0]
        track = len(ends)
        while track > 0 and ends[track - 1] + CLEARANCE <= begin:
            track -= 1
        if track == len(ends):
            ends.append(end)
        else:
            ends[track] = max(ends[track], end)
        tracks[i] = first + track
    return first + len(ends)


def _apart(steps: list[Step], some: list[int], others: list[int]) -> bool:
    """Return whether the two sets of steps lie left and right of each other."""
    if not some or not others:
        return True
    low = min(steps[i][1] for i in some)
    high = max(steps[i][0] for i in some)
    return max(steps[i][1] for i in others) + CLEARANCE <= low or high + CLEARANCE <= min(
        steps[i][0] for i in others
    )
