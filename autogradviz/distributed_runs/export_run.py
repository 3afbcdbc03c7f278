"""Reports of runs as files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz import event_log
from autogradviz.distributed_runs.scene import build_run_scene, pack_run, read_totals
from autogradviz.distributed_runs.scene.saved_bytes_and_gradient_norms import ranks_to_open
from autogradviz.errors import OutputExistsError
from autogradviz.render.distributed_runs import render_run_html
from autogradviz.render.html_pages import REPORT
from autogradviz.trace import load

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow.dataset as ds

    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.distributed_runs.run_interface_for_scene import ReadableRun


# --- the HTML report of a run ---------------------------------------------------------------------


MOST_FILE_BYTES: Final = 4_000_000
"""The largest recording of a rank whose own views are in the report of its run."""

MOST_BYTES: Final = 12_000_000
"""Bytes of all ranks in a report, compressed."""


def write_html(run: ReadableRun, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write an interactive report of a run; see ``Run.html``."""
    scene = build_run_scene(run, read_totals(run))
    page = render_run_html(pack_run(scene), _open_ranks(run), title=scene.title)
    event_log.write_over_own(path, page, REPORT, overwrite=overwrite)


def _open_ranks(run: ReadableRun) -> dict[int, bytes]:
    """Return the packed scenes of the ranks in the report."""
    sizes = {file.rank: file.path.stat().st_size for file in run.files}
    opened: dict[int, bytes] = {}
    for rank in ranks_to_open(run):
        if sizes[rank] <= MOST_FILE_BYTES:
            packed = run.trace(rank)._packed_scene()  # noqa: SLF001
            if sum(map(len, opened.values())) + len(packed) <= MOST_BYTES:
                opened[rank] = packed
    return opened


def save_redacted(files: Sequence[RankFile], folder: Path) -> None:
    """Write copies of the files of a run without source text and absolute paths."""
    folder.mkdir()
    for file in files:
        load(file.path).save(folder / file.path.name, redact=True)


# --- the events of all ranks as one table: an Arrow dataset, and Parquet files --------------------


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
