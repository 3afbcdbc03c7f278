"""Keep events: append, read, save and load."""

from autogradviz.log.encoding import FORMAT_VERSION, described_schema, write_options
from autogradviz.log.file import batches, columns_of, load, save, save_new
from autogradviz.log.log import Log
from autogradviz.log.placing import PathLike, beside, require_free, require_own, write_over_own
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
    "beside",
    "columns_of",
    "described_schema",
    "load",
    "redact",
    "require_free",
    "require_own",
    "save",
    "save_new",
    "within",
    "write_options",
    "write_over_own",
]
