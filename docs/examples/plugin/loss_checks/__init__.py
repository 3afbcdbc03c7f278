"""A finding and an export format for autogradviz."""
