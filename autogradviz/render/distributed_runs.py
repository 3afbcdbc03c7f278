"""Views of distributed runs as a page and as a widget."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from autogradviz.render.html_pages import (
    PAGE,
    PAGE_STYLE,
    REPORT,
    compress_module,
    embed_script,
    read_global_run_script,
    read_global_script,
    read_run_script,
    read_run_style,
    read_style,
)
from autogradviz.render.widget import close_widgets_of_previous_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- distributed run html -------------------------------------------------------------------------
#
# HTML report of a run: its picture, and the viewers of some of its ranks; it works offline.


_MOUNT: Final = """
{
  const decode = autogradvizRun.decodeBase64;
  const payload = decode(document.getElementById("payload").textContent);
  const traits = { _run: payload, height: innerHeight };
  const model = {
    get: (name) => traits[name],
    set: (name, value) => { traits[name] = value; },
    save_changes() {},
    on() {},
    off() {},
    ranks: new Map(),
  };
  for (const each of document.querySelectorAll("script[data-rank]")) {
    model.ranks.set(Number(each.dataset.rank), () => decode(each.textContent));
  }
  autogradvizRun.default.render({ model, el: document.getElementById("viewer") });
}
"""


def render_run_html(payload: bytes, opened: Mapping[int, bytes], *, title: str) -> str:
    """Return an HTML page that shows a run and makes no network requests.

    Args:
        payload: the packed scene of the run.
        opened: the packed scenes of ranks that the page can open.
        title: title of the page.
    """
    viewer = read_global_script() if opened else ""
    script = f"{viewer}\n{read_global_run_script()}{_MOUNT}"
    kind = "application/zlib"
    ranks = "\n".join(
        f'<script type="{kind}" data-rank="{rank}">{base64.b64encode(scene).decode()}</script>'
        for rank, scene in opened.items()
    )
    return PAGE.substitute(
        report=REPORT,
        title=html.escape(title),
        style=read_style() + read_run_style(),
        page_style=PAGE_STYLE,
        kind=kind,
        stories="",
        payload=base64.b64encode(payload).decode(),
        others=ranks,
        **embed_script(script),
    )


# --- ``RunWidget``: the picture of a run in a notebook --------------------------------------------


HEIGHT: Final = 720
"""In pixels."""


class RunWidget(anywidget.AnyWidget):
    """The picture of a run; ``Run.widget`` returns it.

    Attributes:
        rank: the selected rank, -1 for none. Can be set and observed.
        height: height in pixels, at least 300. Can be set.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> widget = autogradviz.load("run/").widget()
        >>> widget.rank = 0
    """

    _esm = compress_module(read_run_script())
    _css = read_style() + read_run_style()

    _run = traitlets.Bytes().tag(sync=True)
    """The scene of the run as deflated JSON."""

    _opening = traitlets.Dict().tag(sync=True)
    """The rank whose own views the reader requested, and the number of requests."""

    _opened = traitlets.Dict().tag(sync=True)
    """The rank whose scene is in ``_payload``, or why there is none."""

    _payload = traitlets.Bytes().tag(sync=True)
    """The scene of one rank as deflated JSON."""

    rank = traitlets.Int(-1).tag(sync=True)
    height = traitlets.Int(HEIGHT, min=300).tag(sync=True)

    def __init__(
        self,
        payload: bytes,
        *,
        open_rank: Callable[[int], bytes],
        words: Callable[[], str],
        **traits: Any,
    ) -> None:
        """Create a widget.

        Args:
            payload: the packed scene of the run.
            open_rank: returns the packed scene of a rank.
            words: returns a summary as text, for terminals.
            traits: initial values of traits, for example ``height``.
        """
        traits.setdefault("layout", {"width": "100%"})
        super().__init__(_run=payload, **traits)
        self._open_rank, self._words = open_rank, words
        self.observe(self._open, names="_opening")

    def _open(self, change: dict[str, Any]) -> None:
        request = change["new"]
        try:
            self._payload = self._open_rank(int(request["rank"]))
            self._opened = request
        except Exception as error:  # noqa: BLE001 - the reader gets to know it
            self._opened = {**request, "error": f"{type(error).__name__}: {error}"}

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        result = self._repr_mimebundle_()
        assert result is not None, "the widget has no view"
        bundle, metadata = result
        return {**bundle, "text/plain": self._words()}, metadata


def bundle_run_for_cell(widget: RunWidget) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a widget as one output; it is closed when its cell is run again."""
    close_widgets_of_previous_run(widget)
    return widget._bundle()  # noqa: SLF001
