"""The events of all ranks as one table: an Arrow dataset, and Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from autogradviz import event_log
from autogradviz.errors import OutputExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow.dataset as ds

    from autogradviz.runs.rank_files import RankFile


def dataset(files: Sequence[RankFile]) -> ds.Dataset:
    """Return the events of all ranks, in memory; the column "rank" is set in each row."""
    import pyarrow.dataset as ds

    schema = event_log.described_schema().remove_metadata()
    return ds.dataset(pa.Table.from_batches(_batches(files, schema), schema))


def _batches(files: Sequence[RankFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    place = schema.get_field_index("rank")
    for file in files:
        for batch in event_log.batches(event_log.load(file.path)):
            ranks = pa.array([file.rank] * len(batch), schema.field(place).type)
            columns = [*batch.columns[:place], ranks, *batch.columns[place + 1 :]]
            yield pa.record_batch(columns, schema=schema)


def write_parquet(files: Sequence[RankFile], folder: Path, *, overwrite: bool) -> None:
    """Write one Parquet file for each rank to a folder "rank=3".

    Raises:
        OutputExistsError: if something exists at the path.
    """
    import pyarrow.parquet as pq

    if folder.exists() and not (overwrite and folder.is_dir()):
        message = f"{folder} exists; name another folder."
        raise OutputExistsError(message)
    schema = event_log.described_schema().remove_metadata()
    names = [name for name in schema.names if name != "rank"]  # readers take it from the folder
    schema = pa.schema([schema.field(name) for name in names])
    for file in files:
        target = folder / f"rank={file.rank}" / "events.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            for batch in event_log.batches(event_log.load(file.path)):
                writer.write_batch(batch.select(names).cast(schema))
