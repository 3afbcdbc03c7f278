"""Keep events: append, read, save and load."""

from autogradviz.log.file import FORMAT_VERSION, load, save
from autogradviz.log.log import Log, Row

__all__ = ["FORMAT_VERSION", "Log", "Row", "load", "save"]
