"""Keep events: append, read, save and load."""

from autogradviz.log.log import Log, Row

__all__ = ["Log", "Row"]
