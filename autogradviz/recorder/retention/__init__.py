"""Retention: which events stay in memory, what is compressed, dropped or written to a file."""
