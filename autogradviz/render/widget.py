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
from autogradviz.render.widget_cleanup import close_widgets_of_previous_run
from autogradviz.scene.lookup import find_group, find_item
from autogradviz.scene.payload import to_payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.scene.schema import Scene

COLORS: Final = ("kind", "module", "bytes", "time", "gradient")
"""What nodes can be colored by; the first is the default."""

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

    def __init__(
        self,
        scene: Scene,
        *,
        picture: Callable[[], str] | None = None,
        words: Callable[[], str] | None = None,
        **traits: Any,
    ) -> None:
        """Make a widget.

        Args:
            scene: what to show.
            picture: gives the same as SVG, for where the widget cannot live.
            words: gives the same as text, for terminals and for hosts without pictures.
            traits: values of the widget's traits.
        """
        # A box shares its width out by what its children ask for: all of it, each.
        traits.setdefault("layout", {"width": "100%"})
        still = uuid.uuid4().hex if picture else ""
        super().__init__(payload=pack(scene), still=still, **traits)
        self._scene, self._picture, self._words = scene, picture, words

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

    def _ipython_display_(self) -> None:
        """Display the widget, and behind it a picture for wherever the widget cannot live.

        A notebook that is opened again without its kernel knows the widget by name only, and would
        say so in place of any other form of the same output; the picture is therefore an output
        of its own. While the widget lives it is hidden; where it does not, the widget's error is.
        """
        from IPython.display import display

        bundle, metadata = self._bundle()
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        if self._picture is not None:
            svg = self._picture()
            picture = {"text/html": _still_html(self.still, svg), "image/svg+xml": svg}
            display(picture, raw=True)  # type: ignore[no-untyped-call]

    def _bundle_with_picture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return widget and picture as one output, and its metadata."""
        bundle, metadata = self._bundle()
        return {**bundle, **({"image/svg+xml": self._picture()} if self._picture else {})}, metadata

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        shown = self._repr_mimebundle_()
        assert shown is not None, "the widget has no view"
        bundle, metadata = shown
        return {**bundle, "text/plain": self._words()} if self._words else bundle, metadata


def display_for_cell(widget: TraceWidget) -> None:
    """Display a widget until its cell is run again."""
    close_widgets_of_previous_run(widget)
    widget._ipython_display_()


def bundle_for_cell(widget: TraceWidget) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return widget and picture as one output in several MIME types, and its metadata.

    For hosts that call ``_repr_mimebundle_``; IPython gets two outputs instead. The widget is
    closed when its cell is run again.
    """
    close_widgets_of_previous_run(widget)
    return widget._bundle_with_picture()  # noqa: SLF001


def pack(scene: Scene) -> bytes:
    """Return a scene as the browser reads it: JSON, deflated in zlib's format."""
    text = json.dumps(to_payload(scene), separators=(",", ":"))
    return zlib.compress(text.encode(), level=6)


def _still_html(name: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<div data-agv-still="{name}"><style>{_NO_ERROR}</style>'
        f'<img src="data:image/svg+xml;base64,{data}" alt="The autograd graph as a picture"'
        ' style="max-width: 100%"></div>'
    )
