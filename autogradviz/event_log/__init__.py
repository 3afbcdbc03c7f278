"""The log of a recording: append, read, compress, filter, redact, save and load events.

NOTE [ Rows and columns ]
The log keeps the field values of each event type in one flat list
(``event_log/uncompressed_rows.py``), so that no object is added per event for the garbage collector
to count. A kind is read as columns, one list per field; ``Log.of`` builds frozen dataclasses from
them. Kinds that occur by the hundred thousand are read with ``Log.fields``, ``Log.column`` and
``Log.merged_fields``, which take a tenth of the time. A file is one wide Arrow table with one
column per field name, of which four fifths are null in a batch; these columns are not decompressed
(``event_log/arrow_file_layout.py``). It is written in batches whose definitions precede their
uses, so the readable part of a torn file is complete in itself.

When a recording has 16,384 rows at the end of a step (32,768 within a step), all but the newest
4,096 are compressed: marshalled column by column and compressed per event type, to 14 bytes per
event instead of 300 (``event_log/compressed_rows.py``,
``recorder/retention/keep_all_compressed.py``).
This takes a quarter of the time of building Arrow columns, which is done only on saving. Only the
process that recorded unmarshals; from a file, Arrow batches are read
(``event_log/arrow_file_layout.py``) and written again unchanged. Importing pandas, which Arrow
does with its first array, is avoided during a step: arrays are built from buffers
(``event_log/arrow_arrays.py``).

Reading a trace creates hundreds of thousands of frozen records.
``support/fast_dataclass_constructor.py`` fills them before they are frozen, and
``support/locks_gc_and_stderr.py`` pauses the garbage collector meanwhile. A picture of the
graph does not build the panels. Groups with equal links are arranged once. In a compressed payload,
columns of ascending numbers hold differences (``scene/payload.py``).
"""

import autogradviz.event_log.load_pyarrow  # noqa: F401 - before all that imports pyarrow
from autogradviz.event_log.arrow_file_layout import is_arrow_file
from autogradviz.event_log.encode_arrow_stream import (
    FORMAT_VERSION,
    described_schema,
    write_options,
)
from autogradviz.event_log.filter_and_redact import matches_module, redact, within
from autogradviz.event_log.log import Log
from autogradviz.event_log.overwrite_protection import (
    PathLike,
    check_folder,
    check_not_exists,
    check_overwrites_own_file,
    temp_sibling,
    write_over_own,
)
from autogradviz.event_log.rank_path_after_restart import path_of_rank
from autogradviz.event_log.rank_summary import RankSummary, collective_key, with_common_rounds
from autogradviz.event_log.rank_summary import Step as StepSummary
from autogradviz.event_log.read_some_kinds_of_events import read_kinds, read_summary
from autogradviz.event_log.step_totals import StepTotals, step_totals
from autogradviz.event_log.streaming_writer import Stream
from autogradviz.event_log.trace_file import (
    batches,
    columns_of,
    from_bytes,
    is_complete_trace,
    is_damaged,
    load,
    save,
    save_new,
    to_bytes,
)
from autogradviz.event_log.training_steps import TrainingSteps
from autogradviz.event_log.uncompressed_rows import Row

__all__ = [
    "FORMAT_VERSION",
    "Log",
    "PathLike",
    "RankSummary",
    "Row",
    "StepSummary",
    "StepTotals",
    "Stream",
    "TrainingSteps",
    "batches",
    "check_folder",
    "check_not_exists",
    "check_overwrites_own_file",
    "collective_key",
    "columns_of",
    "described_schema",
    "from_bytes",
    "is_arrow_file",
    "is_complete_trace",
    "is_damaged",
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
    "to_bytes",
    "with_common_rounds",
    "within",
    "write_options",
    "write_over_own",
]
