"""The viewer in a notebook."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from autogradviz.render.assets import read_script, read_style
from autogradviz.render.shown import close_earlier
from autogradviz.scene.find import find_group, find_item
from autogradviz.scene.payload import to_payload

if TYPE_CHECKING:
    from autogradviz.scene.schema import Scene

COLORS: Final = ("kind", "module", "bytes", "time", "gradient")
"""What nodes can be coloured by; the first is the default."""

HEIGHT: Final = 620
"""Pixels: fits a laptop's screen below JupyterLab's own bars."""


class TraceWidget(anywidget.AnyWidget):
    """One scene to look at, and what is selected in it.

    Example:
        >>> widget = TraceWidget(scene)
        >>> widget.observe(lambda change: print(change["new"]), names="selected")
        >>> widget.select("Linear")  # doctest: +SKIP
        >>> widget.color_by = "bytes"
    """

    _esm = read_script()
    _css = read_style()

    payload = traitlets.Bytes().tag(sync=True)
    """The scene's columns as JSON, deflated."""

    selected = traitlets.Dict().tag(sync=True)
    """What is selected: ``kind``, ``id``, ``name``, ``module``, ``location``; else empty.

    Setting it selects, in every view of the widget; ``select`` finds the id for you.
    """

    color_by = traitlets.Enum(COLORS, default_value="kind").tag(sync=True)
    """What the fill of a node says: ``kind``, ``module``, ``bytes``, ``time``, ``gradient``."""

    focused = traitlets.Dict().tag(sync=True)
    """The group that was looked at last through ``focus``."""

    height = traitlets.Int(HEIGHT, min=200).tag(sync=True)
    """In pixels."""

    def __init__(self, scene: Scene, **traits: Any) -> None:
        super().__init__(payload=pack(scene), **traits)
        self._scene = scene

    def select(self, what: str | int | None) -> None:
        """Select something and bring it into view.

        Args:
            what: a node's number, or the name of a module, a parameter, a node or an op, or a
                line as "train.py:12"; of several that are so called the first. None selects
                nothing.

        Raises:
            ValueError: nothing is called so.
        """
        self.selected = {} if what is None else find_item(self._scene, what)

    def focus(self, module: str) -> None:
        """Open a module and look at it alone.

        Args:
            module: its qualified name, "h.3.attn"; "" is the whole graph.

        Raises:
            ValueError: no box stands for that module.
        """
        looks = self.focused.get("looks", 0) + 1
        self.focused = {"group": find_group(self._scene, module), "module": module, "looks": looks}


def pack(scene: Scene) -> bytes:
    """Return a scene as the browser reads it: JSON, deflated in zlib's format."""
    text = json.dumps(to_payload(scene), separators=(",", ":"))
    return zlib.compress(text.encode(), level=6)


def mimebundle(scene: Scene, svg: str, text: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a notebook displays: the widget, and a picture where no widget can live.

    JupyterLab shows the widget while its kernel lives; a notebook opened again without one, and
    a host that only renders files, show the picture.

    Args:
        scene: what to show.
        svg: the same as a picture.
        text: the same in words, for terminals and for hosts without pictures.

    Returns:
        The bundle and its metadata, as ``_repr_mimebundle_`` returns them.
    """
    widget = TraceWidget(scene)
    close_earlier(widget)
    shown = widget._repr_mimebundle_()
    assert shown is not None, "the widget has no view"
    bundle, metadata = shown
    words = {"text/plain": text} if text else {}
    return {**bundle, **words, "image/svg+xml": svg}, metadata
