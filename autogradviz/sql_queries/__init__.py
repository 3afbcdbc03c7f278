"""Named questions to the events of a trace, in SQL."""
