"""Scripts in the compressed form in which pages and widgets contain them: half of their size.

A page's Content Security Policy allows no evaluation of text. It lists the hash of the script,
which the page adds as an element; a widget imports the script from a blob, as anywidget does with
the widget's own.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from typing import Final

_INFLATE: Final = """
const inflate = (code) => {
  const letters = atob(code);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
};
"""

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
    """Return a script in zlib format, as base64."""
    return base64.b64encode(zlib.compress(script.encode(), 9)).decode()


def compress_module(script: str) -> str:
    """Return an ES module that has the default export of another one, and contains it."""
    return f'const code = "{compress_script(script)}";{_INFLATE}{_MODULE}'
