"""DOT output of a scene, and SVG drawn by Graphviz if it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import plural, short_path
from autogradviz.errors import GraphTooLargeError, MissingProgramError
from autogradviz.render.svg.themes_and_primitives import LIGHT, mix
from autogradviz.scene.label_text_and_width import saved_tensor_label

if TYPE_CHECKING:
    from collections.abc import Collection

    import graphviz

    from autogradviz.scene.schema import Scene, SceneGroup, SceneNode

MAX_DOT_NODES: Final = 5_000

_INSTALL: Final = (
    "Graphviz's `dot` is not on the PATH. Install it (apt install graphviz, brew install graphviz,"
    " conda install -c conda-forge graphviz, winget install Graphviz.Graphviz),"
    ' or use engine="native", which needs no program'
)


def to_dot(scene: Scene, *, open_groups: Collection[int] | None = None) -> str:
    """Return the visible graph as DOT, with open groups as clusters.

    Args:
        scene: the scene to draw.
        open_groups: indices of the groups to open; by default those that the scene opens.

    Raises:
        GraphTooLargeError: if more than 5,000 boxes would be visible.
    """
    return str(_DotWriter(scene, open_groups).digraph().source)


def render_dot_svg(scene: Scene, *, open_groups: Collection[int] | None = None) -> str:
    """Return the visible graph as SVG, laid out by Graphviz.

    Args:
        scene: the scene to draw.
        open_groups: indices of the groups to open; by default those that the scene opens.

    Raises:
        GraphTooLargeError: if more than 5,000 boxes would be visible.
        MissingProgramError: if Graphviz is not installed.
    """
    from graphviz.backend import ExecutableNotFound

    digraph = _DotWriter(scene, open_groups).digraph()
    try:
        return str(digraph.pipe(format="svg", encoding="utf-8"))
    except ExecutableNotFound as error:
        raise MissingProgramError(_INSTALL) from error


class _DotWriter:
    """Builds the digraph of a scene."""

    def __init__(self, scene: Scene, open_groups: Collection[int] | None) -> None:
        if open_groups is None:
            open_groups = {group.index for group in scene.groups if group.open}
        self._scene = scene
        self._opened = {0, *open_groups}
        self._badges: dict[int, list[str]] = {}  # parameters and saved tensors by node
        for parameter in scene.parameter_badges:
            self._badges.setdefault(parameter.node, []).append(f"{parameter.name or 'input'} ▸")
        for saved in scene.saved_badges:
            label = saved_tensor_label(saved.slot, saved.version, saved.seen_version, saved.nbytes)
            self._badges.setdefault(saved.node, []).append("".join(label))

    def digraph(self) -> graphviz.Digraph:
        """Return the digraph of the visible nodes and groups."""
        import graphviz

        visible = self._visible()
        if len(visible) > MAX_DOT_NODES:
            message = (
                f"{len(visible):,} boxes would be visible; Graphviz takes minutes and gigabytes"
                f' above {MAX_DOT_NODES:,}. Use engine="native", or open fewer groups (depth=1)'
            )
            raise GraphTooLargeError(message)
        dot = graphviz.Digraph("autograd")
        # Edges point from the loss to the inputs, and the inputs are on top.
        dot.attr(rankdir="BT", fontname="Helvetica", fontsize="11", labelloc="t")
        dot.attr(
            label=graphviz.escape(f"{self._scene.summary.title}\n{self._scene.summary.subtitle}")
        )
        dot.attr("node", shape="box", style="rounded,filled", fontname="Helvetica", fontsize="11")
        dot.attr("edge", color=LIGHT.edge, fontname="Helvetica", fontsize="9")
        self._fill(dot, self._scene.groups[0])
        for (source, target), views in self._edges(visible).items():
            label = plural(views, "view") if views > 1 else ""
            dot.edge(source, target, label=label)
        return dot

    def _visible(self) -> dict[tuple[str, int], str]:
        """Return the DOT names of all visible boxes, by kind and index."""
        visible: dict[tuple[str, int], str] = {}
        waiting = [0]
        while waiting:
            for cell in self._scene.groups[waiting.pop()].cells:
                if cell.kind == "node":
                    visible["node", cell.ref] = f"n{cell.ref}"
                elif cell.kind == "group" and cell.ref in self._opened:
                    waiting.append(cell.ref)
                elif cell.kind == "group":
                    visible["group", cell.ref] = f"g{cell.ref}"
        return visible

    def _fill(self, dot: graphviz.Digraph, group: SceneGroup) -> None:
        for cell in group.cells:
            if cell.kind == "node":
                self._add_node(dot, self._scene.nodes[cell.ref])
            elif cell.kind == "group":
                inner = self._scene.groups[cell.ref]
                if cell.ref in self._opened:
                    with dot.subgraph(name=f"cluster{cell.ref}") as cluster:
                        cluster.attr(
                            label=_escape(_group_label(inner)), labeljust="l", labelloc="b"
                        )
                        cluster.attr(style=_style(inner), color=_color(inner))
                        self._fill(cluster, inner)
                else:
                    contents = inner.contents or plural(inner.node_count, "node")
                    label = f"{_group_label(inner)}\n{contents}"
                    dot.node(
                        f"g{cell.ref}",
                        _escape(label),
                        style=f"{_style(inner)},filled",
                        fillcolor=LIGHT.page,
                        color=_color(inner),
                    )

    def _add_node(self, dot: graphviz.Digraph, node: SceneNode) -> None:
        red = node.error or node.state == "failed"
        color = LIGHT.mutation if red else LIGHT.backward
        ran = red or node.state == "ran"
        fill = mix(color, LIGHT.tint2, LIGHT.page) if ran else LIGHT.page
        lines = [f"{node.op} | {node.name}" if node.op else node.name]
        lines += self._badges.get(node.index, [])
        if node.compact:
            dot.node(f"n{node.index}", "+", shape="circle", fillcolor=fill, color=color)
            return
        tooltip = _escape(f"{node.module} {short_path(node.filename)}:{node.lineno}".strip())
        label = _escape("\n".join(lines))
        dot.node(f"n{node.index}", label, fillcolor=fill, color=color, tooltip=tooltip)

    def _edges(self, visible: dict[tuple[str, int], str]) -> dict[tuple[str, str], int]:
        """Return the edges between boxes, without repeats, with their numbers of folded views."""
        edges: dict[tuple[str, str], int] = {}
        for edge in self._scene.edges:
            source, target = self._box(edge.source, visible), self._box(edge.target, visible)
            if source != target:
                edges[source, target] = edges.get((source, target), 0) + edge.views
        return edges

    def _box(self, node: int, visible: dict[tuple[str, int], str]) -> str:
        """Return the box of a node: its own, or that of the closed group that contains it."""
        name = visible.get(("node", node))
        group = self._scene.nodes[node].group
        while name is None:
            name = visible.get(("group", group))
            group = self._scene.groups[group].parent
        return name


def _escape(text: str) -> str:
    """Return a text in which Graphviz interprets no escapes."""
    import graphviz

    return str(graphviz.escape(text.replace("\0", "\ufffd")))


def _group_label(group: SceneGroup) -> str:
    words = [group.label, group.type_name if group.type_name != group.label else ""]
    words.append(f"×{group.repeat:,} same ops" if group.repeat > 1 else "")
    words.append("checkpoint region" if group.checkpointed else "")
    return " · ".join(word for word in words if word)


def _style(group: SceneGroup) -> str:
    return "rounded,dashed" if group.checkpointed else "rounded"


def _color(group: SceneGroup) -> str:
    return LIGHT.recompute if group.checkpointed else LIGHT.line
