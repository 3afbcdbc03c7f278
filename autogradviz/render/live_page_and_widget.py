"""The live view as a page and as a widget."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from autogradviz.render.html_pages import (
    hashes,
    read_global_live_script,
    read_live_script,
    read_live_style,
    render_html,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.scene.schema import Scene


# --- the page of ``autogradviz watch``, which asks its server for new steps -----------------------


_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>autogradviz watch</title>
<style>$style</style>
<style>$page_style</style>
</head>
<body>
<main id="live"><h1>autogradviz watch</h1></main>
<noscript><p>This page requires JavaScript.</p></noscript>
<script>$script</script>
</body>
</html>
""")

_PAGE_STYLE: Final = """
html, body { margin: 0; background: #fff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { html, body { background: #16181b; } }
#live { max-width: 1280px; margin: 0 auto; }
#live > .agv { border: 0; border-radius: 0; }
h1 { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; }
"""

_MOUNT: Final = '\nautogradviz.default.followServer(document.getElementById("live"));\n'


def render_live_page() -> str:
    """Return the page, which may only talk to the server that it came from."""
    script = read_global_live_script() + _MOUNT
    policy = (
        f"default-src 'none'; script-src {hashes(script)}; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.substitute(
        policy=policy, style=read_live_style(), page_style=_PAGE_STYLE, script=script
    )


# --- ``LiveWidget``: the steps of a recording in a notebook while it is recorded ------------------


class LiveWidget(anywidget.AnyWidget):
    """The steps of a recording so far; ``Trace.live`` returns it.

    Example:
        >>> with autogradviz.record(model) as running:
        ...     widget = running.live()
        ...     model(x).sum().backward()
    """

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

    @traitlets.observe("_wanted")
    def _open(self, change: Any) -> None:
        wanted = change["new"]
        scene = self._scene_of(int(wanted.get("step", -1)))
        if scene is not None:
            page = render_html(scene)
            self._opened = {**wanted, "page": page}
