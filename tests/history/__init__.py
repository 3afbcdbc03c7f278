"""Bugs from the histories of public repositories, with the fix as the label; see ``__main__``."""
