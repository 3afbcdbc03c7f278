"""Retention: keeps, compresses, drops and writes events during a recording."""
