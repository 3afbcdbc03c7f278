"""Configuration of Sphinx: ``make docs`` builds the documentation site."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "extensions")]

from autogradviz import __version__  # noqa: E402 - found in the checkout

project = "autogradviz"
author = "The autogradviz authors"
project_copyright = author
version = release = __version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "myst_nb",
    "outside_pages",
    "dark_pictures",
    "event_reference",
    "gallery_reports",
]

exclude_patterns = ["README.md", "examples"]  # index.md includes the first
suppress_warnings = ["mystnb.unknown_mime_type"]  # plotly outputs are stored as PNG too

# Pages are plain Markdown, so that they can be read on a code host as well.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are stored with their outputs; the tests run them

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Formats"]

html_theme = "furo"
html_title = "autogradviz"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["enlarge_pictures.js"]
html_search_scorer = str(DOCS / "search_scores.js")
html_favicon = "static/favicon.svg"
html_logo = "static/logo.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#1f5fbf",
        "color-brand-content": "#1f5fbf",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fb0ff",
        "color-brand-content": "#7fb0ff",
    },
}
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp, .go"

WIDE_PAGES = {"mechanisms"}


def hide_contents_of_wide_pages(
    _app: object, page: str, _template: str, context: dict[str, object], _tree: object
) -> None:
    """Give the page's table of contents to its tables."""
    if page in WIDE_PAGES:
        context["furo_hide_toc"] = True


def keep_out_of_the_sidebar(app: Sphinx, _document: object) -> None:
    """Let the pages of findings be reached by their list, links and the search alone."""
    page = app.env.docname
    if page.startswith("findings/"):
        app.env.metadata[page]["orphan"] = True


def setup(app: Sphinx) -> None:
    """Register the handlers; furo's, which sets the same value, runs before ours."""
    app.connect("html-page-context", hide_contents_of_wide_pages, priority=900)
    app.connect("doctree-read", keep_out_of_the_sidebar)


# Sphinx reads only files below this folder.
TUTORIALS = DOCS / "tutorials"
TUTORIALS.mkdir(exist_ok=True)
for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
    copied = TUTORIALS / notebook.name
    if not copied.exists() or copied.read_bytes() != notebook.read_bytes():
        shutil.copyfile(notebook, copied)
