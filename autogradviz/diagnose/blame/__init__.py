"""Blame: find the source line that changed something between two moments of a recording."""
