"""Traces in other programs' formats: tables, timelines, graphs. One module a format."""

from autogradviz.export.formats import FORMATS, export

__all__ = ["FORMATS", "export"]
