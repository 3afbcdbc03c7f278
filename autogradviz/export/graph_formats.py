"""The autograd graph as Graphviz, GraphML and Model Explorer files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from autogradviz.render.graphviz import to_dot
from autogradviz.scene import build_scene
from autogradviz.support.escape_surrogates import escape_surrogates

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot contain, not even escaped."""

_GRAPHML: Final = "http://graphml.graphdrawing.org/xmlns"


def write_dot(analysis: Analysis, path: Path) -> None:
    """Write the graph, with the groups open that the viewer opens first, as Graphviz source."""
    path.write_text(escape_surrogates(to_dot(build_scene(analysis, ()))), encoding="utf-8")


def _attributes(analysis: Analysis, node: Node) -> dict[str, str | int]:
    """Return the known attributes of a node; bytes as in the graph view."""
    sizes = analysis.saved_memory.of_nodes({node.node_id})
    known: dict[str, str | int | None] = {
        "name": node.name,
        "op": node.op.overload if node.op else None,
        "module": node.module,
        "parameter": node.parameter.name if node.parameter else None,
        "state": node.state,
        "runs": node.runs,
        "duration_ns": node.duration_ns,
        "saved_nbytes": sizes.saved + sizes.recomputed,
        "saved_slots": ", ".join(saved.slot or "?" for saved in node.saved),
        "region_id": node.region_id,
        "order": node.order,
        "location": str(node.location) if node.location else None,
    }
    return {key: value for key, value in known.items() if value not in {None, ""}}


# --- GraphML ----------------------------------------------------------------------------------


def write_graphml(analysis: Analysis, path: Path) -> None:
    """Write all nodes and edges; gradients flow from the source of an edge to its target."""
    graph = analysis.graph
    attributes = {node_id: _attributes(analysis, node) for node_id, node in graph.nodes.items()}
    root = ET.Element("graphml", xmlns=_GRAPHML)
    kinds = {name: type(value) for each in attributes.values() for name, value in each.items()}
    for name, kind in kinds.items():
        _declare(root, "node", name, kind)
    for name in ("output", "input"):
        _declare(root, "edge", name, int)
    drawn = ET.SubElement(root, "graph", id="autograd", edgedefault="directed")
    for node_id, each in attributes.items():
        element = ET.SubElement(drawn, "node", id=f"n{node_id}")
        for name, value in each.items():
            _add_value(element, "node", name, value)
    for edge in graph.edges:
        element = ET.SubElement(drawn, "edge", source=f"n{edge.source}", target=f"n{edge.target}")
        _add_value(element, "edge", "output", edge.output)
        _add_value(element, "edge", "input", edge.input)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _declare(root: ET.Element, of: str, name: str, kind: type) -> None:
    options = {"for": of, "attr.name": name, "attr.type": "long" if kind is int else "string"}
    ET.SubElement(root, "key", {"id": f"{of}_{name}", **options})


def _add_value(element: ET.Element, of: str, name: str, value: object) -> None:
    data = ET.SubElement(element, "data", key=f"{of}_{name}")
    data.text = _NOT_XML.sub("\ufffd", str(value))


# --- Model Explorer ---------------------------------------------------------------------------


def write_model_explorer(analysis: Analysis, path: Path) -> None:
    """Write a graph collection for Model Explorer, with modules as namespaces.

    Edges follow the forward pass, from the inputs to the loss, opposite to the gradients.
    """
    incoming: dict[int, list[dict[str, str]]] = {}
    for edge in analysis.graph.edges:
        incoming.setdefault(edge.source, []).append(
            {
                "sourceNodeId": str(edge.target),
                "sourceNodeOutputId": str(edge.input),
                "targetNodeInputId": str(edge.output),
            }
        )
    started = analysis.started
    label = (started.model_name if started else None) or "autograd"
    nodes = [
        {
            "id": str(node.node_id),
            "label": node.op.name if node.op else node.name,
            "namespace": node.module.replace(".", "/"),
            "attrs": [
                {"key": key, "value": str(value)}
                for key, value in _attributes(analysis, node).items()
            ],
            "incomingEdges": incoming.get(node.node_id, []),
            "outputsMetadata": _outputs(node),
        }
        for node in analysis.graph.nodes.values()
    ]
    collection = {"label": label, "graphs": [{"id": label, "nodes": nodes}]}
    path.write_text(json.dumps(collection), encoding="utf-8")


def _outputs(node: Node) -> list[dict[str, Any]]:
    outputs = node.op.outputs if node.op else ()
    return [
        {
            "id": str(index),
            "attrs": [
                {"key": "shape", "value": f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"}
            ],
        }
        for index, tensor in enumerate(outputs)
    ]
