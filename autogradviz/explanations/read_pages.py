"""``explain``: documentation of findings and errors, read from the Markdown files beside this one.

A file ``<slug>.md`` has the title as its heading, then the meaning, and the sections "How it
happens", "How to fix it" and "Example", which is a complete program. The heading "Example on 2
processes" makes the program that of a run, "Example on an accelerator" one that needs a device.
Texts are plain: one paragraph without markup.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from autogradviz.entry_points import failures_reported, plugins
from autogradviz.explanations.codes import slug_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = Path(__file__).parent
_GROUPS: Final = ("findings", "runs", "errors")
_WIDTH: Final = 88
_LAYOUT: Final = re.compile(
    r"# (?P<title>.+)\n\n(?P<means>.+)"
    r"\n\n## How it happens\n\n(?P<happens>.+)"
    r"\n\n## How to fix it\n\n(?P<fix>.+)"
    r"\n\n## Example(?: on (?P<processes>\d+) processes| on an (?P<device>accelerator))?"
    r"\n\n```python\n(?P<example>.+?)\n```\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The documentation of one finding or error. ``str(page)`` is the text.

    Attributes:
        slug: the name of the finding or error, "graph-lost".
        title: one sentence without a period.
        means: what happened, and why it matters.
        happens: the code that usually causes it.
        fix: what to change.
        example: a complete program that causes it. The line that the finding names as the
            culprit ends with ``# <-- named``.
        processes: how many processes run the example, as torchrun starts them; each records to
            the folder "run/".
        on_accelerator: the example needs an accelerator.

    Example:
        >>> autogradviz.explain("graph-lost").title
        'The loss has no graph'
    """

    slug: str
    title: str
    means: str
    happens: str
    fix: str
    example: str
    processes: int = 1
    on_accelerator: bool = False

    def __str__(self) -> str:
        parts = [
            f"{self.title}  [{self.slug}]",
            textwrap.fill(self.means, _WIDTH),
            f"How it happens\n{textwrap.fill(self.happens, _WIDTH)}",
            f"How to fix it\n{textwrap.fill(self.fix, _WIDTH)}",
            f"An example{self._start}\n{textwrap.indent(self.example.strip(), '    ')}",
        ]
        return "\n\n".join(parts)

    __repr__ = __str__

    @property
    def _start(self) -> str:
        launcher = f": torchrun --nproc-per-node {self.processes} example.py"
        return "" if self.processes == 1 else launcher


def read_page(path: Path) -> Page:
    """Return the page that a Markdown file contains; its name is the slug.

    Raises:
        ValueError: the file does not have the layout of a page.
    """
    found = _LAYOUT.fullmatch(path.read_text(encoding="utf-8"))
    if found is None:
        message = f"{path} does not have the layout of a page"
        raise ValueError(message)
    texts = {name: " ".join(found[name].split()) for name in ("title", "means", "happens", "fix")}
    processes = int(found["processes"] or 1)
    return Page(
        slug=path.stem,
        example=found["example"],
        processes=processes,
        on_accelerator=found["device"] is not None,
        **texts,
    )


@cache
def _pages_by_slug() -> dict[str, Page]:
    paths = [path for group in _GROUPS for path in sorted((_FOLDER / group).glob("*.md"))]
    return {path.stem: read_page(path) for path in paths}


def pages(group: str = "") -> tuple[Page, ...]:
    """Return the pages of a group: "findings", "runs" or "errors"; by default all, in this order.

    Those of a group are in the order of their slugs. Pages of plug-ins are not among them.
    """
    found = _pages_by_slug()
    if not group:
        return tuple(found.values())
    return tuple(found[path.stem] for path in sorted((_FOLDER / group).glob("*.md")))


@cache
def _pages_of_plugins() -> dict[str, Page]:
    """Return the pages of plug-ins, by slug; of pages with the same slug, the first.

    Warns:
        AutogradvizWarning: for each page that cannot be read.
    """
    found: dict[str, Page] = {}
    for plugin in plugins("autogradviz.rules"):
        for page in _pages_in(plugin.value, plugin.origin):
            found.setdefault(page.slug, page)
    return {slug: page for slug, page in found.items() if slug not in _pages_by_slug()}


def _pages_in(module: object, origin: str) -> Iterator[Page]:
    """Yield the pages in a plug-in's module, and in the folder "pages" next to it."""
    if not isinstance(module, ModuleType):
        return
    yield from (value for value in vars(module).values() if isinstance(value, Page))
    if module.__package__ and module.__file__:  # else the folder would be that of all packages
        for path in sorted((Path(module.__file__).parent / "pages").glob("*.md")):
            with failures_reported(origin, "has a page that cannot be read"):
                yield read_page(path)


def overview() -> list[str]:
    """Return one line for each page, those of plug-ins last, with its slug and title."""
    found = _pages_by_slug() | _pages_of_plugins()
    width = max(map(len, found))
    return [f"{page.slug:{width}}  {page.title}" for page in found.values()]


def title_of(slug: str) -> str:
    """Return the title of a page, the words of the slug if a plug-in has none."""
    page = _pages_by_slug().get(slug) or _pages_of_plugins().get(slug)
    return page.title if page else slug.replace("-", " ")


def explain(slug: str) -> Page:
    """Return the documentation page of a finding or an error. Printing it prints its text.

    Args:
        slug: ``Finding.slug`` or ``Finding.code``, or the name in brackets at the end of an error
            message: "graph-lost", "AGV401".

    Raises:
        TypeError: the slug is no text.
        UnknownSlugError: no finding or error has this slug.

    Example:
        >>> autogradviz.explain("graph-lost")
        The loss has no graph  [graph-lost]
        ...
    """
    if not isinstance(slug, str):
        # callers need not be typed
        message = (  # type: ignore[unreachable]
            f"explain() takes the slug of a finding or an error, not {type(slug).__name__}"
        )
        raise TypeError(message)
    slug = slug_of(slug)
    found = _pages_by_slug()
    if slug not in found:
        found = found | _pages_of_plugins()
    if slug not in found:
        import difflib

        from autogradviz.errors import UnknownSlugError

        near = difflib.get_close_matches(slug, found, n=3, cutoff=0.4)
        meant = f"; did you mean {' or '.join(near)}?" if near else ";"
        message = f"no finding or error is called {slug!r}{meant} `autogradviz explain` lists all"
        raise UnknownSlugError(message)
    return found[slug]
