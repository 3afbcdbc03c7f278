"""A report: the viewer and one scene in one file that works offline."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from string import Template
from typing import TYPE_CHECKING, Final

from autogradviz.render.assets import read_global_script, read_style
from autogradviz.scene.payload import to_payload

if TYPE_CHECKING:
    from autogradviz.scene.schema import Scene

REPORT: Final = '<meta name="generator" content="autogradviz">'
"""What tells a report from other pages."""

_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
$report
<title>$title</title>
<style>$style</style>
<style>$page_style</style>
</head>
<body>
<main id="viewer"></main>
<noscript>$fallback</noscript>
<script type="application/json" id="payload">$payload</script>
<script>$script</script>
</body>
</html>
""")

_PAGE_STYLE: Final = """
html, body { height: 100%; margin: 0; background: #fff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { html, body { background: #16181b; } }
#viewer { height: 100%; }
#viewer > .agv { height: 100%; min-height: 420px; border: 0; border-radius: 0; }
noscript { display: block; padding: 24px; font: 14px/1.5 system-ui, sans-serif; }
"""

_MOUNT: Final = """
{
  const traits = {
    _payload: JSON.parse(document.getElementById("payload").textContent),
    height: innerHeight,
  };
  const model = {
    get: (name) => traits[name],
    set: (name, value) => { traits[name] = value; },
    save_changes() {},
    on() {},
    off() {},
  };
  autogradviz.default.render({ model, el: document.getElementById("viewer") });
}
"""

_NO_SCRIPT: Final = (
    "<p>This report of a PyTorch autograd recording needs JavaScript to be seen.</p>"
)


def render_html(scene: Scene, *, title: str | None = None, svg: str = "") -> str:
    """Return a whole page that shows a scene and asks the network for nothing.

    Args:
        scene: what to show.
        title: of the page; the scene's own when left out.
        svg: a picture of the scene, shown where scripts are off.
    """
    script = read_global_script() + _MOUNT
    return _PAGE.substitute(
        policy=_policy(script),
        report=REPORT,
        title=html.escape(title or scene.summary.title or "autogradviz"),
        style=read_style(),
        page_style=_PAGE_STYLE,
        fallback=svg or _NO_SCRIPT,
        payload=embed_json(to_payload(scene)),
        script=script,
    )


def embed_json(value: object) -> str:
    """Return JSON that cannot end the script element it stands in, nor begin a comment there."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(script: str) -> str:
    """Return a policy that allows this very script, inline styles and nothing else.

    The script lays large graphs out in a thread that runs the same text, from a blob.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )
