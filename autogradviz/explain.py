"""Documentation of findings and errors: what it means, how it happens, how to fix it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.diagnose.explain_page import Page

__all__ = ["explain", "overview", "pages"]


@cache
def _pages_by_slug() -> dict[str, Page]:
    # Late imports, because ``import autogradviz`` imports this module.
    from autogradviz.diagnose.rule import all_pages
    from autogradviz.own_error_pages import ERROR_PAGES
    from autogradviz.run_finding_pages import RUN_PAGES

    return {page.slug: page for page in (*all_pages(), *RUN_PAGES, *ERROR_PAGES)}


def pages() -> tuple[Page, ...]:
    """Return all pages: findings by the priority of their rules, findings of runs, errors."""
    return tuple(_pages_by_slug().values())


def overview() -> list[str]:
    """Return one line for each page, with its slug and title."""
    width = max(map(len, _pages_by_slug()))
    return [f"{page.slug:{width}}  {page.title}" for page in pages()]


def explain(slug: str) -> Page:
    """Return the documentation page of a finding or an error. Printing it prints its text.

    Args:
        slug: ``Finding.slug``, or the name in brackets at the end of an error message:
            "graph-lost".

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
    found = _pages_by_slug()
    if slug not in found:
        import difflib

        from autogradviz.errors import UnknownSlugError

        near = difflib.get_close_matches(slug, found, n=3, cutoff=0.4)
        meant = f"; did you mean {' or '.join(near)}?" if near else ";"
        message = f"no finding or error is called {slug!r}{meant} `autogradviz explain` lists all"
        raise UnknownSlugError(message)
    return found[slug]
