"""Renderers of scenes: terminal text, SVG, DOT, HTML, plots, notebook widget."""
