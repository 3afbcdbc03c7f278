"""Export to the formats of other programs: tables, timelines and graphs."""

from autogradviz.export.formats import FORMATS, Format, all_formats, describe_formats, export

__all__ = ["FORMATS", "Format", "all_formats", "describe_formats", "export"]
