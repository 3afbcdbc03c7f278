"""SVG pictures of a scene."""

from autogradviz.render.svg.draw_graph import render_svg

__all__ = ["render_svg"]
