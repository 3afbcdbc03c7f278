"""The HTML report of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.distributed_runs.scene import build_run_scene, pack_run, read_totals
from autogradviz.distributed_runs.scene.saved_bytes_and_gradient_norms import ranks_to_open
from autogradviz.render.distributed_runs import render_run_html
from autogradviz.render.html_pages import REPORT
from autogradviz.trace import load

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.distributed_runs.run_interface_for_scene import ReadableRun


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
