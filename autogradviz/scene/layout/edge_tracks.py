"""Tracks: the heights of the horizontal line segments between two rows.

``assets/viewer/layout/edge_tracks.js`` does the same computation in the same order.
"""

from __future__ import annotations

from math import floor
from typing import Final, TypeAlias

TRACK_PITCH: Final = 8.0
TRACKS_HEIGHT: Final = 96.0
"""Maximum height of all tracks of a gap. If there are many, their pitch is smaller."""

CLEARANCE: Final = 8.0
"""Between two segments on one track."""

Step: TypeAlias = tuple[float, float, int, int]
"""One horizontal segment: x above, x below, the link, and the index in the link's path."""


def assign_tracks(steps: list[Step]) -> tuple[list[int], float]:
    """Return each step's track, 0 on top, and the distance between two tracks.

    Of the steps that go up to the right, those that start further left are higher; of those that
    go up to the left, those that start further right. Steps of one direction therefore never
    cross. The direction on top is the one that causes fewer clashes, where one line comes down at
    the x at which another starts.
    """
    tracks = [0] * len(steps)
    to_right = sorted(i for i, (upper, lower, _, _) in enumerate(steps) if upper > lower)
    to_left = sorted(i for i, (upper, lower, _, _) in enumerate(steps) if upper <= lower)
    top, bottom, sign = to_right, to_left, 1
    if _clashes(steps, to_left, to_right) > _clashes(steps, to_right, to_left):
        top, bottom, sign = to_left, to_right, -1
    count = _stack(steps, top, sign, 0, tracks)
    first = 0 if _are_disjoint(steps, to_right, to_left) else count
    count = max(count, _stack(steps, bottom, -sign, first, tracks))
    pitch = TRACK_PITCH if count < 2 else min(TRACK_PITCH, TRACKS_HEIGHT / (count - 1))  # noqa: PLR2004  one distance needs two
    return tracks, pitch


def _clashes(steps: list[Step], lower: list[int], upper: list[int]) -> int:
    """Return the number of steps of ``upper`` that start where one of ``lower`` comes down."""
    places = {floor(steps[i][0] + 0.5) for i in lower}
    return sum(floor(steps[i][1] + 0.5) in places for i in upper)


def _stack(steps: list[Step], chosen: list[int], sign: int, first: int, tracks: list[int]) -> int:
    """Assign tracks from ``first`` on to the chosen steps; return the first free track."""
    ends: list[float] = []  # of each track
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


def _are_disjoint(steps: list[Step], some: list[int], others: list[int]) -> bool:
    """Return whether one set of steps is entirely to the left of the other."""
    if not some or not others:
        return True
    low = min(steps[i][1] for i in some)
    high = max(steps[i][0] for i in some)
    return max(steps[i][1] for i in others) + CLEARANCE <= low or high + CLEARANCE <= min(
        steps[i][0] for i in others
    )
