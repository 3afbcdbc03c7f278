"""The HTML report of a run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.render.html import REPORT
from autogradviz.render.run_html import render_run_html
from autogradviz.runs.scene import build_run_scene, pack_run
from autogradviz.runs.scene.saved_peaks import MOST_FILE_BYTES, ranks_to_open, saved_peaks
from autogradviz.trace import load

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from autogradviz.runs.run import Run

MOST_BYTES: Final = 12_000_000
"""Bytes of all ranks in a report, compressed."""


def write_html(run: Run, path: str | os.PathLike[str], *, redact: bool, overwrite: bool) -> None:
    """Write an interactive report of a run; see ``Run.html``."""
    if redact:
        with tempfile.TemporaryDirectory() as folder:
            _write(_redacted(run, Path(folder, run.folder.resolve().name)), path, overwrite)
    else:
        _write(run, path, overwrite)


def _write(run: Run, path: str | os.PathLike[str], overwrite: bool) -> None:  # noqa: FBT001
    opened, peaks = _open_ranks(run)
    scene = build_run_scene(run, peaks)
    page = render_run_html(pack_run(scene), opened, title=scene.title)
    event_log.write_over_own(path, page, REPORT, overwrite=overwrite)


def _open_ranks(run: Run) -> tuple[dict[int, bytes], Mapping[int, Mapping[int, int]]]:
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


def _redacted(run: Run, folder: Path) -> Run:
    """Return a copy of a run without source text and absolute paths."""
    from autogradviz.runs.run import Run

    folder.mkdir()
    for file in run.files:
        load(file.path).save(folder / file.path.name, redact=True)
    return Run(folder)
