"""Conditions under which a recording opens the debugger, and what it shows there."""
