"""Stops: the events at which a recording opens a debugger."""
