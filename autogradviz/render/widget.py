"""``TraceWidget``: the interactive viewer in a notebook."""

from __future__ import annotations

import base64
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from autogradviz.render.html_pages import compress_module, read_script, read_style
from autogradviz.scene.find_item_in_scene import find_group, find_item
from autogradviz.scene.payload import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from anywidget import AnyWidget

    from autogradviz.scene.schema import Scene


COLORS: Final = ("kind", "module", "bytes", "time", "gradient", "change")
"""Values of ``TraceWidget.color_by``; the first is the default."""

_NO_ERROR: Final = (
    ".jp-OutputArea-child:not(:has(.agv))"
    ":has(+ .jp-OutputArea-child [data-agv-still]) { display: none }"
)
"""Hides JupyterLab's "model not found" message if the static picture follows it."""

HEIGHT: Final = 620
"""In pixels; fits below the toolbars of JupyterLab on a laptop screen."""

HEIGHT_OF_FOLD: Final = 260
"""In pixels, of the fold alone: what the cell of a healthy step shows."""


class TraceWidget(anywidget.AnyWidget):
    """The interactive viewer; ``Trace.widget`` returns it.

    Attributes:
        selected: the selected node, group or tensor as a dict with ``kind``, ``id``, ``name``,
            ``module`` and ``location``; empty without a selection. Can be set and observed.
        color_by: the meaning of a node's color: "kind", "module", "bytes" (saved for backward),
            "time" (of backward), "gradient" (L2 norm) or "change" (in a comparison). Can be set
            and observed.
        focused: the group that ``focus`` displayed last.
        state: what is on display as text, "view=memory&step=2&node=12": the part of a report's
            address behind the #. Can be set and observed.
        height: height in pixels, at least 200. Can be set.

    Example:
        >>> widget = trace.widget()
        >>> widget.observe(lambda change: print(change["new"]["name"]), names="selected")
        >>> widget.select("TanhBackward0")
        TanhBackward0
        >>> widget.color_by = "bytes"
    """

    _esm = compress_module(read_script())
    _css = read_style()

    _payload = traitlets.Bytes().tag(sync=True)
    """The scene as deflated JSON."""

    _before = traitlets.Bytes().tag(sync=True)
    """The scene that it is compared with, in the same form; empty without one."""

    selected = traitlets.Dict().tag(sync=True)
    color_by = traitlets.Enum(COLORS, default_value="kind").tag(sync=True)
    focused = traitlets.Dict().tag(sync=True)
    state = traitlets.Unicode().tag(sync=True)
    _still = traitlets.Unicode().tag(sync=True)
    """Id of the static picture that follows the widget; the widget hides it."""

    height = traitlets.Int(HEIGHT, min=200).tag(sync=True)

    _question = traitlets.Unicode().tag(sync=True)
    """The subject that the reader asks about, as in ``SceneAnswer``."""

    _answer = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    """The last answer, empty before the first one; None without a function that answers."""

    def __init__(
        self,
        scene: Scene,
        *,
        before: Scene | None = None,
        picture: Callable[[], str] | None = None,
        words: Callable[[], str] | None = None,
        answer: Callable[[str], dict[str, Any]] | None = None,
        **traits: Any,
    ) -> None:
        """Create a widget.

        Args:
            scene: the view model.
            before: that of the recording with which it is compared.
            picture: returns the graph as SVG, for notebooks without a kernel.
            words: returns a summary as text, for terminals.
            answer: answers the questions "why" that are not stored in the scene.
            traits: initial values of traits, for example ``height``.
        """
        # In an ipywidgets box, each child takes the share of the width that it requests.
        traits.setdefault("layout", {"width": "100%"})
        still = uuid.uuid4().hex if picture else ""
        earlier = b"" if before is None else pack(before)
        super().__init__(_payload=pack(scene), _before=earlier, _still=still, **traits)
        self._scene, self._picture, self._words = scene, picture, words
        if answer is not None:
            self._answer = {}
            self.observe(lambda change: self._reply(change["new"], answer), names="_question")

    def _reply(self, subject: str, answer: Callable[[str], dict[str, Any]]) -> None:
        try:
            self._answer = answer(subject)
        except Exception as error:  # noqa: BLE001 - the reader gets it as the answer
            self._answer = {"subject": subject, "question": f"{type(error).__name__}: {error}"}

    def select(self, what: str | int | None) -> None:
        """Select a node or a module, and bring it into view.

        Args:
            what: the id of a node; or the name of a module, a parameter, a node or an op; or a
                line, "train.py:12". The first match is selected. None clears the selection.

        Raises:
            ValueError: if nothing matches.

        Example:
            >>> widget = trace.widget()
            >>> widget.select("down.weight")
            >>> widget.selected["module"]
            'down'
        """
        self.selected = {} if what is None else find_item(self._scene, what)

    def focus(self, module: str) -> None:
        """Open a module and display it alone.

        Args:
            module: its qualified name, "h.3.attn"; "" displays the whole graph.

        Raises:
            ValueError: if the graph has no group for that module.

        Example:
            >>> trace.widget().focus("up")
        """
        looks = self.focused.get("looks", 0) + 1  # to focus the same module again is a change
        self.focused = {"group": find_group(self._scene, module), "module": module, "looks": looks}

    def _ipython_display_(self) -> None:
        """Display the widget, then a static picture for notebooks opened without a kernel.

        Such a notebook displays an error in place of the widget, even if the same output has
        other MIME types. The picture is therefore a second output. The widget hides the picture,
        and the picture hides the error.
        """
        from IPython.display import display

        bundle, metadata = self._bundle()
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        if self._picture is not None:
            svg = self._picture()
            picture = {"text/html": _still_html(self._still, svg), "image/svg+xml": svg}
            display(picture, raw=True)  # type: ignore[no-untyped-call]

    def _bundle_with_picture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return widget and picture as one output, and its metadata."""
        bundle, metadata = self._bundle()
        return {**bundle, **({"image/svg+xml": self._picture()} if self._picture else {})}, metadata

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        result = self._repr_mimebundle_()
        assert result is not None, "the widget has no view"
        bundle, metadata = result
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


def _still_html(name: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<div data-agv-still="{name}"><style>{_NO_ERROR}</style>'
        f'<img src="data:image/svg+xml;base64,{data}" alt="The autograd graph as a picture"'
        ' style="max-width: 100%"></div>'
    )


# --- close the widgets of a notebook cell when the cell is run again ------------------------------


_DISPLAYED: Final[dict[str, tuple[str, list[AnyWidget]]]] = {}
"""By cell: the id of its last run, and the widgets that the run displayed."""


def close_widgets_of_previous_run(widget: AnyWidget) -> None:
    """Close the widgets that the running cell displayed in its previous run; register this one.

    Only for widgets that the program holds no reference to. Does nothing outside a notebook, and
    in notebooks without cell ids.
    """
    cell, run = _running_cell()
    if not cell:
        return
    last_run, widgets = _DISPLAYED.get(cell, (run, []))
    if last_run != run:
        for old in widgets:
            old.close()
        widgets = []
    _DISPLAYED[cell] = (run, [*widgets, widget])


def _running_cell() -> tuple[str, str]:
    """Return the ids of the running cell and of this run, "" if unknown."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    if not isinstance(parent, dict):
        return "", ""
    cell = parent.get("metadata", {}).get("cellId") or ""
    return str(cell), str(parent.get("header", {}).get("msg_id", ""))
