"""HTML pages with a picture, and the script and style that they contain."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final

from autogradviz.render.svg.finding_story import render_frames
from autogradviz.scene.payload import pack, to_payload

if TYPE_CHECKING:
    from autogradviz.scene.schema import Scene


# --- HTML report: the viewer and one scene in a single file that works offline --------------------


REPORT: Final = '<meta name="generator" content="autogradviz">'
"""Identifies a page as a report, so that it may be overwritten by another one."""

PAGE: Final = Template("""\
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
<main id="viewer"><h1>$title</h1></main>
<noscript>
<p>This report of a PyTorch autograd recording requires JavaScript.</p>
<style>#stories { display: block; }</style>
</noscript>
<div id="stories">$stories</div>
<script type="$kind" id="payload">$payload</script>
$others
$scripts
</body>
</html>
""")

PAGE_STYLE: Final = """
html, body { height: 100%; margin: 0; background: #fff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { html, body { background: #16181b; } }
#viewer { height: 100%; }
h1 { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; }
#viewer > .agv { height: 100%; min-height: 420px; border: 0; border-radius: 0; }
noscript { display: block; padding: 24px; font: 14px/1.5 system-ui, sans-serif; }
#stories { display: none; color-scheme: light; background: #fff; }
@media print {
  html, body { height: auto; }
  #viewer:has(~ #stories svg) { display: none; }
  #stories { display: block; }
}
"""

MAX_STORIES: Final = 3
"""Findings whose stories a printed report shows."""

_MOUNT: Final = """
{
  const read = (id) => {
    const { type, textContent } = document.getElementById(id);
    if (!textContent) return null;
    const isJson = type === "application/json";
    return isJson ? JSON.parse(textContent) : autogradviz.decodeBase64(textContent);
  };
  const traits = {
    _payload: read("payload"),
    _before: read("before"),
    _link: true,
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


def _embed_compressed(scene: Scene) -> str:
    return base64.b64encode(pack(scene)).decode()


def _embed_plain(scene: Scene) -> str:
    return embed_json(to_payload(scene))


def render_html(
    scene: Scene, *, before: Scene | None = None, title: str | None = None, compress: bool = True
) -> str:
    """Return an HTML page that shows a scene and makes no network requests.

    On paper, and without JavaScript, the page shows the stories of the first findings.

    Args:
        scene: the scene to show.
        before: the scene that it is compared with.
        title: title of the page, by default that of the scene.
        compress: store scene and viewer compressed. Browsers of before 2023 need False.
    """
    embed = _embed_compressed if compress else _embed_plain
    script = read_global_script() + _MOUNT
    kind = "application/zlib" if compress else "application/json"
    earlier = "" if before is None else embed(before)
    return PAGE.substitute(
        report=REPORT,
        title=html.escape(title or scene.summary.title or "autogradviz"),
        style=read_style(),
        page_style=PAGE_STYLE,
        kind=kind,
        stories="\n".join(
            render_frames(scene, story, f"story-{at}")
            for at, story in enumerate(scene.stories[:MAX_STORIES])
        ),
        payload=embed(scene),
        others=f'<script type="{kind}" id="before">{earlier}</script>',
        **embed_script(script, compress=compress),
    )


def embed_script(script: str, *, compress: bool = True) -> dict[str, str]:
    """Return the elements with a page's script, and the content security policy that allows it."""
    if not compress:
        return {"scripts": f"<script>{script}</script>", "policy": policy(script)}
    code = compress_script(script)
    return {
        "scripts": f'<script type="application/zlib" id="script">{code}</script>\n'
        f"<script>{START}</script>",
        "policy": policy(START, script),
    }


def embed_json(value: object) -> str:
    """Return JSON that cannot end the script element that contains it, or start a comment in it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(*scripts: str) -> str:
    """Return a content security policy that allows only these scripts and inline styles.

    The viewer lays out large graphs in a worker that runs its own text, from a blob.
    """
    return (
        f"default-src 'none'; script-src {hashes(*scripts)}; style-src 'unsafe-inline'; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )


def hashes(*scripts: str) -> str:
    """Return the sources of a content security policy that allow only these scripts."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


# --- assets of the viewer: script and style sheet, read from the package --------------------------


EXPORT: Final = "export default autogradviz.default;"
"""The last line of the bundle, which makes it an ES module. Without it, it sets a global."""


@cache
def read_script() -> str:
    """Return the viewer as an ES module."""
    return _read("viewer.js")


@cache
def read_global_script() -> str:
    """Return the viewer as a plain script that sets the global ``autogradviz``."""
    script = read_script().rstrip()
    assert script.endswith(EXPORT), "the viewer's bundle has no export line"
    return script.removesuffix(EXPORT)


@cache
def read_global_run_script() -> str:
    """Return the viewer of runs as a plain script that sets the global ``autogradvizRun``."""
    return _read("run.js")


@cache
def read_run_script() -> str:
    """Return the viewer and the viewer of runs as one ES module, which exports the latter."""
    export = EXPORT.replace("autogradviz.", "autogradvizRun.")
    return f"{read_global_script()}\n{read_global_run_script()}\n{export}\n"


@cache
def read_run_style() -> str:
    """Return the style sheet of the viewer of runs, which follows that of the viewer."""
    return _read("run.css")


@cache
def read_style() -> str:
    """Return the viewer's style sheet."""
    return _read("viewer.css")


@cache
def read_live_script() -> str:
    """Return the live view as an ES module."""
    return _read("live.js")


@cache
def read_global_live_script() -> str:
    """Return the live view as a plain script that sets the global ``autogradviz``."""
    return read_live_script().rstrip().removesuffix(EXPORT)


@cache
def read_live_style() -> str:
    """Return the style sheet of the live view."""
    return _read("live.css")


def _read(name: str) -> str:
    return (files("autogradviz.render") / "static" / name).read_text(encoding="utf-8")


# --- compressed script ----------------------------------------------------------------------------
#
# Scripts in the compressed form in which pages and widgets contain them: half of their size.
#
# A page's Content Security Policy allows no evaluation of text. It lists the hash of the script,
# which the page adds as an element; a widget imports the script from a blob, as anywidget does with
# the widget's own.


_LETTERS: Final = (
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
"""Of base 85, which takes 6 % less than base 64."""

_INFLATE: Final = """
const inflatePart = (text) => {
  const letters = "LETTERS";
  const values = new Uint8Array(128);
  for (let at = 0; at < 85; at++) values[letters.charCodeAt(at)] = at;
  const end = text.length - 1; // the last letter is the number of zeros that fill the last group
  const view = new DataView(new ArrayBuffer((end / 5) * 4));
  for (let at = 0; at < end; at += 5) {
    let sum = 0;
    for (let digit = at; digit < at + 5; digit++) sum = sum * 85 + values[text.charCodeAt(digit)];
    view.setUint32((at / 5) * 4, sum);
  }
  const bytes = new Uint8Array(view.buffer, 0, view.byteLength - Number(text[end]));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
};
const inflate = async (code) =>
  (await Promise.all(code.trim().split(" ").map(inflatePart))).join("");
""".replace("LETTERS", _LETTERS)

START: Final = f"""
{{
  {_INFLATE.strip()}
  const start = async () => {{
    const script = document.createElement("script");
    script.textContent = await inflate(document.getElementById("script").textContent);
    document.body.append(script);
  }};
  if (globalThis.DecompressionStream) start();
  else {{
    const text = "This browser reads no compressed reports; write one with compress=False.";
    document.getElementById("viewer").append(text);
  }}
}}
"""
"""Runs the script that the element with the id ``script`` contains."""

_MODULE: Final = """
const script = new Blob([await inflate(code)], { type: "text/javascript" });
const url = URL.createObjectURL(script);
export default (await import(url)).default;
URL.revokeObjectURL(url);
"""


@cache
def compress_script(script: str) -> str:
    """Return a script in zlib format, as base 85, without what ends or begins elements of HTML.

    The viewer, if the script begins with it, is a part of its own, which the build compressed with
    more effort; a space ends it.
    """
    viewer, code = read_global_script(), _code_of_build()
    if not code or not script.startswith(viewer):
        return _compress_part(script)
    return f"{code} {_compress_part(script.removeprefix(viewer))}"


def _compress_part(script: str) -> str:
    for level in range(9, 0, -1):
        code = encode(zlib.compress(script.encode(), level))
        if is_text_of_element(code):
            return code
    message = "every level of compression gives text that HTML reads as a comment"
    raise AssertionError(message)


@cache
def _code_of_build() -> str:
    """Return the viewer as the build compressed it, "" if it compressed an older one."""
    code = _read("viewer_compressed.txt").strip()
    return code if decompress_script(code) == read_global_script() else ""


def decompress_script(code: str) -> str:
    """Return the script that a page reads from a compressed one."""
    parts = [(base64.b85decode(part[:-1]), int(part[-1])) for part in code.split()]
    return "".join(zlib.decompress(data[: len(data) - zeros]).decode() for data, zeros in parts)


def encode(data: bytes) -> str:
    """Return bytes as base 85, followed by the number of zeros that fill the last group."""
    return f"{base64.b85encode(data, pad=True).decode()}{-len(data) % 4}"


def is_text_of_element(code: str) -> bool:
    """Return whether HTML reads no comment and no other element in a text of an element."""
    return "<!--" not in code and "<script" not in code.lower()


def compress_module(script: str) -> str:
    """Return an ES module that has the default export of another one, and contains it."""
    code = re.sub(r" // .*", "", _INFLATE + _MODULE)
    code = re.sub(r"\s*([=;,{}()<>+*/-])\s*", r"\1", code)
    return f'const code = "{compress_script(script)}";{code}'
