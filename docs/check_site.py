"""Check the built site: it loads nothing from a network, and its links lead somewhere.

python docs/check_site.py docs-output/html
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

LOADING = {"script", "img", "iframe", "source", "video", "audio", "embed", "object"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "search"}
CSS_URL = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


class References(HTMLParser):
    """Collects what a page loads, what it links to, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read one element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values["id"]} if "id" in values else set()
        self.loaded += [
            values[name] for name in ("src", "data") if tag in LOADING and name in values
        ]
        if "style" in values:
            self.loaded += CSS_URL.findall(values["style"])
        if tag == "link" and LOADED_LINKS & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])
        if tag == "a" and "href" in values:
            self.linked.append(values["href"])


def is_external(address: str) -> bool:
    """Return whether an address names another host."""
    return bool(urlsplit(address).netloc)


def problems(site: Path) -> list[str]:
    """Return one line for each external resource and for each link that leads nowhere."""
    pages: dict[Path, References] = {}
    for path in site.rglob("*.html"):
        pages[path] = References()
        pages[path].feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in sorted(pages.items()):
        name = path.relative_to(site)
        found += [f"{name} loads {each}" for each in page.loaded if is_external(each)]
        for address in (*page.loaded, *page.linked):
            target, anchor = urldefrag(address)
            if is_external(address) or urlsplit(address).scheme:
                continue
            file = (path.parent / unquote(urlsplit(target).path)).resolve() if target else path
            known = pages[file].anchors if file in pages else set()
            if not file.exists() or (anchor and file in pages and unquote(anchor) not in known):
                found.append(f"{name} links to {address}, which does not exist")
    for path in site.rglob("*.css"):
        external = CSS_URL.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {each}" for each in external]
    return found


def main() -> None:
    """Print all problems; exit with 1 if there is one."""
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    print(*found, sep="\n", end="\n" * bool(found))  # noqa: T201 - it is a command
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
