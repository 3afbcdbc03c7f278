"""The scene as one SVG file."""
