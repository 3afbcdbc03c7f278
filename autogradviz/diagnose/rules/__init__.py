"""Rules: one finding or one family of closely related findings per module."""
