"""``LiveWidget``: the steps of a recording in a notebook while it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from autogradviz.render.assets import read_live_script, read_live_style
from autogradviz.render.html import render_html

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.scene.schema import Scene


class LiveWidget(anywidget.AnyWidget):
    """The steps of a recording so far; ``Trace.live`` returns it."""

    _esm = read_live_script()
    _css = read_live_style()

    _changes = traitlets.Dict().tag(sync=True)
    """All steps and findings so far."""

    _wanted = traitlets.Dict().tag(sync=True)
    """The step that the reader opens, and how many were opened."""

    _opened = traitlets.Dict().tag(sync=True)
    """That step, and its report as a page."""

    def __init__(self, scene_of: Callable[[int], Scene | None], **traits: Any) -> None:
        """Create a widget.

        Args:
            scene_of: returns the scene of a step, None if there is no such step.
            traits: initial values of traits.
        """
        traits.setdefault("layout", {"width": "100%"})
        super().__init__(**traits)
        self._scene_of = scene_of

    def show(self, changes: dict[str, Any]) -> None:
        """Show the steps and findings so far."""
        self._changes = changes

    @traitlets.observe("_wanted")
    def _open(self, change: Any) -> None:
        wanted = change["new"]
        scene = self._scene_of(int(wanted.get("step", -1)))
        if scene is not None:
            page = render_html(scene)
            self._opened = {**wanted, "page": page}
