"""The viewer in a notebook."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from autogradviz.render.assets import read_script, read_style
from autogradviz.scene.payload import to_payload

if TYPE_CHECKING:
    from autogradviz.scene.schema import Scene

HEIGHT: Final = 620
"""Pixels: fits a laptop's screen below JupyterLab's own bars."""


class TraceWidget(anywidget.AnyWidget):
    """One scene to look at, and what is selected in it.

    Example:
        >>> widget = TraceWidget(scene)
        >>> widget.observe(lambda change: print(change["new"]), names="selected")
    """

    _esm = read_script()
    _css = read_style()

    payload = traitlets.Bytes().tag(sync=True)
    """The scene's columns as JSON, deflated."""

    selected = traitlets.Dict().tag(sync=True)
    """What was clicked last: ``kind``, ``id``, ``name``, ``module``, ``location``; else empty."""

    height = traitlets.Int(HEIGHT, min=200).tag(sync=True)
    """In pixels."""

    def __init__(self, scene: Scene, **traits: Any) -> None:
        super().__init__(payload=pack(scene), **traits)


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
    shown = TraceWidget(scene)._repr_mimebundle_()
    assert shown is not None, "the widget has no view"
    bundle, metadata = shown
    words = {"text/plain": text} if text else {}
    return {**bundle, **words, "image/svg+xml": svg}, metadata
