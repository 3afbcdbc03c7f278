"""Differences between two traces."""
