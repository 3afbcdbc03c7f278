"""The version of autogradviz."""

__version__ = "0.1.0"
