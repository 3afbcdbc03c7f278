"""The log of a recording: append, read, compress, filter, redact, save and load events."""

import autogradviz.event_log.import_arrow  # noqa: F401 - before all that imports pyarrow
from autogradviz.event_log.encode_stream import FORMAT_VERSION, described_schema, write_options
from autogradviz.event_log.file_layout import is_arrow_file
from autogradviz.event_log.filter_modules import matches_module, within
from autogradviz.event_log.log import Log
from autogradviz.event_log.rank_path import path_of_rank
from autogradviz.event_log.rank_summary import Line, RankSummary, collective_key
from autogradviz.event_log.rank_summary import Step as StepSummary
from autogradviz.event_log.read_kinds import as_events, read_kinds, read_summary
from autogradviz.event_log.redact import redact
from autogradviz.event_log.safe_overwrite import (
    PathLike,
    check_folder,
    check_not_exists,
    check_overwrites_own_file,
    temp_sibling,
    write_over_own,
)
from autogradviz.event_log.step_totals import StepTotals, step_totals
from autogradviz.event_log.streaming_writer import Stream
from autogradviz.event_log.trace_file import batches, columns_of, load, save, save_new
from autogradviz.event_log.uncompressed_rows import Row

__all__ = [
    "FORMAT_VERSION",
    "Line",
    "Log",
    "PathLike",
    "RankSummary",
    "Row",
    "StepSummary",
    "StepTotals",
    "Stream",
    "as_events",
    "batches",
    "check_folder",
    "check_not_exists",
    "check_overwrites_own_file",
    "collective_key",
    "columns_of",
    "described_schema",
    "is_arrow_file",
    "load",
    "matches_module",
    "path_of_rank",
    "read_kinds",
    "read_summary",
    "redact",
    "save",
    "save_new",
    "step_totals",
    "temp_sibling",
    "within",
    "write_options",
    "write_over_own",
]
