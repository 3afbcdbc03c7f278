"""Keep events: append, read, save and load."""

from autogradviz.log.encoding import FORMAT_VERSION, described_schema, write_options
from autogradviz.log.file import PathLike, batches, columns_of, load, require_free, save
from autogradviz.log.log import Log
from autogradviz.log.redact import redact
from autogradviz.log.rows import Row
from autogradviz.log.stream import Stream
from autogradviz.log.within import within

__all__ = [
    "FORMAT_VERSION",
    "Log",
    "PathLike",
    "Row",
    "Stream",
    "batches",
    "columns_of",
    "described_schema",
    "load",
    "redact",
    "require_free",
    "save",
    "within",
    "write_options",
]
