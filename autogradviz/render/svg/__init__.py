"""SVG pictures of a scene."""

from autogradviz.render.svg.document import render_svg

__all__ = ["render_svg"]
