"""The page of ``autogradviz watch``, which asks its server for new steps."""

from __future__ import annotations

import base64
import hashlib
from string import Template
from typing import Final

from autogradviz.render.assets import read_global_live_script, read_live_style

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
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.substitute(
        policy=policy, style=read_live_style(), page_style=_PAGE_STYLE, script=script
    )
