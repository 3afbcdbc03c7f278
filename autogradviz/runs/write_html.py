"""The HTML report of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.render.html import REPORT
from autogradviz.render.run_html import render_run_html
from autogradviz.runs.scene import build_run_scene, pack_run
from autogradviz.runs.scene.saved_peaks import MOST_FILE_BYTES, ranks_to_open, saved_peaks
from autogradviz.trace import load

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from autogradviz.runs.rank_files import RankFile
    from autogradviz.runs.run_interface import ReadableRun

MOST_BYTES: Final = 12_000_000
"""Bytes of all ranks in a report, compressed."""


def write_html(run: ReadableRun, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write an interactive report of a run; see ``Run.html``."""
    opened, peaks = _open_ranks(run)
    scene = build_run_scene(run, peaks)
    page = render_run_html(pack_run(scene), opened, title=scene.title)
    event_log.write_over_own(path, page, REPORT, overwrite=overwrite)


def _open_ranks(run: ReadableRun) -> tuple[dict[int, bytes], Mapping[int, Mapping[int, int]]]:
    """Return the packed scenes of the ranks in the report, and their saved bytes by step."""
    sizes = {file.rank: file.path.stat().st_size for file in run.files}
    opened: dict[int, bytes] = {}
    peaks: dict[int, Mapping[int, int]] = {}
    for rank in ranks_to_open(run):
        if sizes[rank] <= MOST_FILE_BYTES:
            trace = run.trace(rank)
            peaks[rank] = saved_peaks(trace)
            packed = trace._packed_scene()  # noqa: SLF001
            if sum(map(len, opened.values())) + len(packed) <= MOST_BYTES:
                opened[rank] = packed
    return opened, peaks


def save_redacted(files: Sequence[RankFile], folder: Path) -> None:
    """Write copies of the files of a run without source text and absolute paths."""
    folder.mkdir()
    for file in files:
        load(file.path).save(folder / file.path.name, redact=True)
