"""The events of all ranks of a run as one table: an Arrow dataset, and Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from autogradviz import event_log
from autogradviz.errors import OutputExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow.dataset as ds

    from autogradviz.distributed_runs.rank_files import RankFile


def dataset(files: Sequence[RankFile]) -> ds.Dataset:
    """Return the events of all ranks; the column "rank" is set in each row.

    Complete files are read when the dataset is, and only the columns that are needed; of others,
    the readable part is held in memory.
    """
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    schema = event_log.described_schema().remove_metadata()
    rank_type = schema.field("rank").type
    file_format, file_system = ds.IpcFileFormat(), LocalFileSystem()
    in_memory = [file for file in files if not event_log.is_arrow_file(file.path)]
    fragments = [
        file_format.make_fragment(
            str(file.path.absolute()),
            file_system,
            ds.field("rank") == pa.scalar(file.rank, rank_type),
        )
        for file in files
        if file not in in_memory
    ]
    on_disk = ds.FileSystemDataset(fragments, schema, file_format, file_system)
    if not in_memory:
        return on_disk
    table = pa.Table.from_batches(_batches(in_memory, schema), schema)
    return ds.dataset([on_disk, ds.dataset(table)]) if fragments else ds.dataset(table)


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
