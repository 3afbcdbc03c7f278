"""The viewer in a notebook."""

from __future__ import annotations

import base64
import json
import uuid
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

_NO_ERROR: Final = (
    ".jp-OutputArea-child:not(:has(.agv))"
    ":has(+ .jp-OutputArea-child [data-agv-still]) { display: none }"
)
"""Hides JupyterLab's "model not found" where a picture stands right behind it."""

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

    still = traitlets.Unicode().tag(sync=True)
    """The picture that stands in for the widget where it cannot live: hidden while it does."""

    height = traitlets.Int(HEIGHT, min=200).tag(sync=True)
    """In pixels."""

    def __init__(self, scene: Scene, **traits: Any) -> None:
        # A box shares its width out by what its children ask for: all of it, each.
        traits.setdefault("layout", {"width": "100%"})
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


def display_scene(scene: Scene, svg: str, text: str = "") -> None:
    """Display the widget, and behind it a picture that shows wherever the widget cannot live.

    A notebook that is opened again without its kernel knows the widget by name only, and would
    say so in place of any other form of the same output; the picture is therefore an output of
    its own. While the widget lives it is hidden; where it does not, the widget's error is.

    Args:
        scene: what to show.
        svg: the same as a picture; none where empty.
        text: the same in words, for terminals and for hosts without pictures.
    """
    from IPython.display import display

    widget = TraceWidget(scene, still=uuid.uuid4().hex if svg else "")
    close_earlier(widget)
    bundle, metadata = _bundle(widget, text)
    display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
    if svg:
        picture = {"text/html": _still_html(widget.still, svg), "image/svg+xml": svg}
        display(picture, raw=True)  # type: ignore[no-untyped-call]


def _still_html(name: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<div data-agv-still="{name}"><style>{_NO_ERROR}</style>'
        f'<img src="data:image/svg+xml;base64,{data}" alt="The autograd graph as a picture"'
        ' style="max-width: 100%"></div>'
    )


def mimebundle(scene: Scene, svg: str, text: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the widget and the picture as one output in several forms.

    For hosts that ask for it; IPython is given two outputs, see ``display_scene``.

    Args:
        scene: what to show.
        svg: the same as a picture.
        text: the same in words, for terminals and for hosts without pictures.

    Returns:
        The bundle and its metadata, as ``_repr_mimebundle_`` returns them.
    """
    widget = TraceWidget(scene)
    close_earlier(widget)
    bundle, metadata = _bundle(widget, text)
    return {**bundle, "image/svg+xml": svg}, metadata


def _bundle(widget: TraceWidget, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    shown = widget._repr_mimebundle_()
    assert shown is not None, "the widget has no view"
    bundle, metadata = shown
    return {**bundle, "text/plain": text} if text else bundle, metadata
