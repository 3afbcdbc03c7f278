"""Placements of hand-written scenes. The viewer must produce the same placements.

``tests/viewer/coordinates.test.mjs`` places the same scenes and compares.
"""

from __future__ import annotations

import json
from dataclasses import replace

from make_scene import Box, scene_of, tower

from autogradviz.scene.layout.coordinates import place
from autogradviz.scene.payload import TABLES, to_payload


def residual():
    """Return blocks with one residual addition each: a compact node with a lane on its left."""
    boxes = [Box(1, "exp", leaves=["scale"])]
    for first in (2, 5, 8):
        module = f"h.{(first - 2) // 3}"
        boxes += [
            Box(first, "mm", to=[first - 1], module=module, saves=["self", "mat2"]),
            Box(first + 1, "relu", to=[first], module=module, saves=["result"]),
            Box(first + 2, "add", to=[first + 1, first - 1], module=module),
        ]
    return scene_of(*boxes, Box(11, "sum", to=[10]))


def dense():
    """Return a net in which every op reads all earlier results: lanes of bends."""
    return scene_of(*(Box(i, "cat", to=list(range(1, i))) for i in range(1, 7)))


def long_skip():
    """Return a chain with a link that is too long to draw."""
    boxes = [Box(1, "exp"), *(Box(i, "mul", to=[i - 1]) for i in range(2, 45))]
    return scene_of(*boxes, Box(45, "add", to=[44, 1]))


def views():
    """Return a chain with view ops, which are folded into its edges."""
    ops = ["exp", "view", "transpose", "mm", "view", "expand", "sum"]
    return scene_of(*(Box(i, op, to=[i - 1] if i > 1 else []) for i, op in enumerate(ops, 1)))


def pictures():
    """Return blocks of which one has pictures in the places of its nodes."""
    scene = residual()
    groups = [
        replace(group, picture_width=320.0, picture_height=180.0) if group.path == "h.1" else group
        for group in scene.groups
    ]
    assert groups != list(scene.groups)
    return replace(scene, groups=tuple(groups))


SCENES = {
    "tower": lambda: scene_of(*tower(3)),
    "checkpointed": lambda: scene_of(*tower(2, region=1), regions=[1]),
    "residual": residual,
    "dense": dense,
    "long_skip": long_skip,
    "views": views,
    "pictures": pictures,
}


def rounded(*numbers):
    return [round(number, 6) + 0.0 for number in numbers]  # no negative zero


def flat(placement):
    return {
        "size": rounded(placement.width, placement.height),
        "boxes": [[b.kind, b.ref, *rounded(b.x, b.y, b.width, b.height)] for b in placement.boxes],
        "lines": [
            [
                line.group,
                line.link,
                [rounded(*point) for point in line.points],
                line.arrow,
                line.stub,
                line.label and rounded(*line.label),
            ]
            for line in placement.lines
        ],
    }


def openings(scene):
    """Return sets of open groups: only the root, the initially open groups, all groups."""
    initial = [group.index for group in scene.groups if group.open]
    return [[0], initial, [group.index for group in scene.groups]]


TABLES_OF_LAYOUT = ("groups", "nodes")


def payload_for_layout(scene):
    """Return the tables that a layout reads, so that other tables do not change the file."""
    others = {name: () for name in TABLES if name not in TABLES_OF_LAYOUT}
    payload = to_payload(replace(scene, **others))
    named = payload["string_columns"]
    return {
        "schema": payload["schema"],
        "strings": payload["strings"],
        "string_columns": {name: named[name] for name in TABLES_OF_LAYOUT},
        **{name: payload[name] for name in TABLES_OF_LAYOUT},
    }


def test_placements_equal_the_golden_file(golden):
    data = {}
    for name, make in SCENES.items():
        scene = make()
        placements = [
            {"open": opening, "placement": flat(place(scene, opening))}
            for opening in openings(scene)
        ]
        data[name] = {"payload": payload_for_layout(scene), "placements": placements}
    scenes = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(scene, ensure_ascii=False)}"
        for name, scene in data.items()
    )
    golden("placements.json", f"{{\n{scenes}\n}}\n")
