"""A short page on every finding and error: what it means, how it happens, how to fix it."""

from __future__ import annotations

import difflib
from typing import Final

from autogradviz.errors import UnknownSlugError
from autogradviz.explain import (
    checkpoint,
    failures,
    gradients,
    inplace,
    misuse,
    reentrant,
    unnoticed,
)
from autogradviz.explain.page import Page

__all__ = ["Page", "explain", "overview", "pages"]

_FAMILIES: Final = (inplace, checkpoint, unnoticed, reentrant, misuse, gradients, failures)
_PAGES: Final[dict[str, Page]] = {page.slug: page for family in _FAMILIES for page in family.PAGES}


def pages() -> tuple[Page, ...]:
    """Return every page, family by family."""
    return tuple(_PAGES.values())


def overview() -> list[str]:
    """Return one line on each page: its name and title."""
    width = max(map(len, _PAGES))
    return [f"{page.slug:{width}}  {page.title}" for page in pages()]


def explain(slug: str) -> Page:
    """Return the page on a finding or an error; it prints as text.

    Args:
        slug: as ``Finding.slug`` has it, and as error messages end with: "graph-lost".

    Raises:
        UnknownSlugError: no finding or error is called so.
    """
    page = _PAGES.get(slug)
    if page is None:
        near = difflib.get_close_matches(slug, _PAGES, n=3, cutoff=0.4)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        message = f"nothing is called {slug!r}{meant} `autogradviz explain` lists all names"
        raise UnknownSlugError(message)
    return page
