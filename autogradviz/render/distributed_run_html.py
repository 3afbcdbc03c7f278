"""HTML report of a run: its picture, and the viewers of some of its ranks; it works offline."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Final

from autogradviz.render.assets import (
    read_global_run_script,
    read_global_script,
    read_run_style,
    read_style,
)
from autogradviz.render.html import PAGE, PAGE_STYLE, REPORT, embed_script

if TYPE_CHECKING:
    from collections.abc import Mapping

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
