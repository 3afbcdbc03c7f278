"""Notebook widget: the viewer for Jupyter, marimo and compatible hosts."""

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
"""Properties for the color of nodes. The first is the default."""

_NO_ERROR: Final = (
    ".jp-OutputArea-child:not(:has(.agv))"
    ":has(+ .jp-OutputArea-child [data-agv-still]) { display: none }"
)
"""Hides JupyterLab's "model not found" error if a picture follows it."""

HEIGHT: Final = 620
"""Pixels. Fits a laptop screen below JupyterLab's bars."""


class TraceWidget(anywidget.AnyWidget):
    """The interactive view of one recording.

    Example:
        >>> widget = TraceWidget(scene)
        >>> widget.observe(lambda change: print(change["new"]), names="selected")
        >>> widget.select("Linear")  # doctest: +SKIP
        >>> widget.color_by = "bytes"
    """

    _esm = read_script()
    _css = read_style()

    payload = traitlets.Bytes().tag(sync=True)
    """The scene's columns as JSON, compressed with zlib."""

    selected = traitlets.Dict().tag(sync=True)
    """The selection: ``kind``, ``id``, ``name``, ``module``, ``location``; empty without one.

    Setting it changes the selection in every view of the widget. ``select`` looks up the id.
    """

    color_by = traitlets.Enum(COLORS, default_value="kind").tag(sync=True)
    """Property that colors the nodes: ``kind``, ``module``, ``bytes``, ``time``, ``gradient``."""

    focused = traitlets.Dict().tag(sync=True)
    """The group that ``focus`` showed last."""

    still = traitlets.Unicode().tag(sync=True)
    """Id of the static picture for hosts without a kernel. The widget hides it while it runs."""

    height = traitlets.Int(HEIGHT, min=200).tag(sync=True)
    """Height in pixels."""

    def __init__(
        self,
        scene: Scene,
        *,
        picture: Callable[[], str] | None = None,
        words: Callable[[], str] | None = None,
        **traits: Any,
    ) -> None:
        """Create a widget.

        Args:
            scene: the scene to show.
            picture: returns the scene as SVG, for hosts without a kernel.
            words: returns the scene as text, for terminals and hosts without pictures.
            traits: values of the widget's traits.
        """
        # A box divides its width by the widths that its children request.
        traits.setdefault("layout", {"width": "100%"})
        still = uuid.uuid4().hex if picture else ""
        super().__init__(payload=pack(scene), still=still, **traits)
        self._scene, self._picture, self._words = scene, picture, words

    def select(self, what: str | int | None) -> None:
        """Select a node or a module and scroll it into view.

        Args:
            what: a node number, or the name of a module, a parameter, a node or an op, or a
                source line as "train.py:12". The first match is selected. None clears the
                selection.

        Raises:
            ValueError: if there is no match.
        """
        self.selected = {} if what is None else find_item(self._scene, what)

    def focus(self, module: str) -> None:
        """Open a module and show only this module.

        Args:
            module: qualified name, "h.3.attn"; "" shows the entire graph.

        Raises:
            ValueError: if the module has no group.
        """
        looks = self.focused.get("looks", 0) + 1
        self.focused = {"group": find_group(self._scene, module), "module": module, "looks": looks}

    def _ipython_display_(self) -> None:
        """Display the widget, and after it a static picture for hosts without a kernel.

        A notebook that is opened without its kernel has no widget state, and shows an error
        instead of the other representations of the same output. The picture is therefore a
        separate output. While the widget runs, the picture is hidden; otherwise the error is.
        """
        from IPython.display import display

        bundle, metadata = self._bundle()
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        if self._picture is not None:
            svg = self._picture()
            picture = {"text/html": _still_html(self.still, svg), "image/svg+xml": svg}
            display(picture, raw=True)  # type: ignore[no-untyped-call]

    def display_for_cell(self) -> None:
        """Display the widget until its cell runs again."""
        close_widgets_of_previous_run(self)
        self._ipython_display_()

    def bundle_for_cell(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return widget and picture as one MIME bundle, and its metadata.

        For hosts that call ``_repr_mimebundle_``. IPython gets two outputs instead.
        """
        close_widgets_of_previous_run(self)
        bundle, metadata = self._bundle()
        return {**bundle, **({"image/svg+xml": self._picture()} if self._picture else {})}, metadata

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        mimebundle = self._repr_mimebundle_()
        assert mimebundle is not None, "the widget has no view"
        bundle, metadata = mimebundle
        return {**bundle, "text/plain": self._words()} if self._words else bundle, metadata


def pack(scene: Scene) -> bytes:
    """Return a scene in the viewer's format: JSON, compressed with zlib."""
    text = json.dumps(to_payload(scene), separators=(",", ":"))
    return zlib.compress(text.encode(), level=6)


def _still_html(still: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<div data-agv-still="{still}"><style>{_NO_ERROR}</style>'
        f'<img src="data:image/svg+xml;base64,{data}" alt="The autograd graph as a picture"'
        ' style="max-width: 100%"></div>'
    )
