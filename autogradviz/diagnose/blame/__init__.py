"""Who did it: the lines between two moments, and which of them changed something."""
