"""Scenes of hand-written graphs, in compact notation.

``scene_of(Box(2, "sum", to=[1]), Box(1, "exp", saves=["result"]))`` is a complete scene. A box has
a number, which is also its creation order, an op, and the boxes that receive its gradient.
``leaves`` lists the parameters of a box. The last box is the root of one backward.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from itertools import accumulate, islice

import make_log as m

from autogradviz.analysis import Analysis
from autogradviz.scene.build_scene import build_scene


@dataclass
class Box:
    number: int
    op: str
    to: list[int] = field(default_factory=list)
    module: str = ""
    saves: list[str] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    ran: bool = True
    region: int | None = None
    name: str = ""
    by: str = "pytorch"
    seen: int = 0  # the version at the unpack

    @property
    def node_name(self):
        camel = "".join(part.capitalize() for part in self.op.strip("_").split("_"))
        return self.name or f"{camel}Backward0"


def model_of(*boxes, regions=(), shape=(4, 8)):
    """Return the analysis of a recording that created these boxes and ran their backward."""
    boxes = sorted(boxes, key=lambda box: box.number)
    modules = {name: i for i, name in enumerate(dict.fromkeys(box.module for box in boxes))}
    names = list(dict.fromkeys(leaf for box in boxes for leaf in box.leaves))
    leaf_ids = {name: 1001 + i for i, name in enumerate(names)}
    facts = [m.began(model_name="Net")]
    facts += [m.module(i, name, name.split(".")[-1].title()) for name, i in modules.items()]
    facts += [m.tensor(box.number, shape) for box in boxes]
    facts += [m.parameter(i, name) for name, i in leaf_ids.items() if "." in name]
    facts += [[m.entered_module(i, i), m.exited_module(i)] for i in modules.values()]
    facts += [m.entered(region, function="Block.forward") for region in regions]
    for box in boxes:
        facts.append(
            m.op(
                box.op,
                (box.number,),
                nr=box.number,
                call=modules[box.module],
                region=box.region,
                writes=(box.number,) if box.op.endswith("_") else (),
                at=f"net.py:{box.number}",
            )
        )
    facts += [m.exited(region) for region in regions]
    facts += [m.leaf(i, i) for i in leaf_ids.values()]
    for box in boxes:
        to = [*box.to, *(leaf_ids[name] for name in box.leaves)]
        facts.append(m.node(box.number, box.node_name, nr=box.number, to=to))
        for i, slot in enumerate(box.saves):
            saved_id = 100 * box.number + i
            facts.append(
                m.saved(
                    saved_id,
                    box.number,
                    node=box.number,
                    slot=slot,
                    nr=box.number,
                    by=box.by,
                    region=box.region,
                    position=saved_id if box.by == "checkpoint" else None,
                )
            )
    facts.append(m.backward(roots=(boxes[-1].number,)))
    for box in reversed(boxes):
        if box.ran:
            facts += [
                m.unpacked(100 * box.number + i, seen=box.seen, node=box.number)
                for i, _ in enumerate(box.saves)
            ]
            facts += m.ran(box.number)
            facts += [m.accumulated(leaf_ids[name], leaf_ids[name]) for name in box.leaves]
    for region in regions:
        facts += [m.recompute(region, region), m.recomputed(region)]
    facts.append(m.backward_ended())
    return Analysis(m.make_log(*facts))


def scene_of(*boxes, findings=(), title=None, depth=None, **more):
    """Return the scene of these boxes."""
    return build_scene(model_of(*boxes, **more), findings, title=title, depth=depth)


def labels(scene):
    """Return the labels of the groups, from the root."""
    return [group.label for group in scene.groups]


def block(first, module, *, to, op="relu", **more):
    """Return a chain of three boxes in a module, numbered from ``first``."""
    return [
        Box(first, "mm", to=to, module=module, saves=["self"], **more),
        Box(first + 1, op, to=[first], module=module, saves=["result"], **more),
        Box(first + 2, "mm", to=[first + 1], module=module, saves=["self"], **more),
    ]


def tower(blocks, **more):
    """Return a chain: a box, the blocks "h.0", "h.1", …, and a box."""
    boxes = [Box(1, "exp")]
    for i in range(blocks):
        boxes += block(2 + 3 * i, f"h.{i}", to=[1 + 3 * i], **more)
    return [*boxes, Box(2 + 3 * blocks, "sum", to=[1 + 3 * blocks])]


def unpack(packed):
    """Return a packed payload as it was before packing."""
    payload = json.loads(zlib.decompress(packed))
    later = payload.pop("later", "")
    if later:
        payload |= json.loads(zlib.decompress(base64.b64decode(later)))
    for table in payload["string_columns"]:
        payload[table] = {name: unpack_column(text) for name, text in payload[table].items()}
    return payload


def with_runs(content):
    """Return a list of which runs may be stored once."""
    if isinstance(content, list):
        return content
    values, counts = content["runs"][::2], content["runs"][1::2]
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def unpack_column(text):
    """Return the values of a column of a packed payload."""
    if text.startswith(("[", "{")):
        return with_runs(json.loads(text))
    if text.startswith("r"):
        return [json.loads(row) for row in text[1:].split(";")]
    content = json.loads(text[1:])
    if text.startswith("c"):
        return [content[0]] * content[1]
    if text.startswith("d"):
        return list(accumulate(with_runs(content)))
    lengths, differences = map(with_runs, content)
    numbers = accumulate(differences)
    return [list(islice(numbers, length)) for length in lengths]
