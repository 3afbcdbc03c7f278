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

_LETTERS: Final = (
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
"""Of base 85, which takes 6 % less than base 64."""

_INFLATE: Final = """
const inflate = (code) => {
  const letters = "LETTERS";
  const values = new Uint8Array(128);
  for (let at = 0; at < 85; at++) values[letters.charCodeAt(at)] = at;
  const text = code.trim();
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
    """Return a script in zlib format, as base 85, without what ends or begins elements of HTML."""
    for level in range(9, 0, -1):
        data = zlib.compress(script.encode(), level)
        code = f"{base64.b85encode(data, pad=True).decode()}{-len(data) % 4}"
        if "<!--" not in code and "<script" not in code.lower():
            return code
    message = "every level of compression gives text that HTML reads as a comment"
    raise AssertionError(message)


def compress_module(script: str) -> str:
    """Return an ES module that has the default export of another one, and contains it."""
    return f'const code = "{compress_script(script)}";{_INFLATE}{_MODULE}'
