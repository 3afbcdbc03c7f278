"""Draw the scene: text, SVG, DOT, HTML, figures, widget."""
