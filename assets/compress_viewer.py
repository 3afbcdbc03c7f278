"""Compress the viewer's bundle with zopfli, into the file that pages and widgets contain.

    python assets/compress_viewer.py

The viewer is 3 % smaller with it than with zlib. ``make bundle`` installs zopfli and runs this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import zopfli.zlib

from autogradviz.render.html_pages import encode, is_text_of_element, read_global_script

TARGET: Final = Path(__file__).parents[1] / "autogradviz/render/static/viewer_compressed.txt"
MOST_ITERATIONS: Final = 15


def main() -> None:
    """Write the file, with the strongest compression whose text can be in an HTML element."""
    script = read_global_script().encode()
    for iterations in range(MOST_ITERATIONS, 0, -1):
        code = encode(zopfli.zlib.compress(script, numiterations=iterations))
        if is_text_of_element(code):
            TARGET.write_text(f"{code}\n", encoding="utf-8")
            return
    message = "each compression gives text that HTML reads as a comment"
    raise AssertionError(message)


if __name__ == "__main__":
    main()
