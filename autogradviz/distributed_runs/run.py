"""``Run``: the recordings of all ranks of a distributed run."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from autogradviz import trace as traces
from autogradviz.analysis.formatting import format_bytes
from autogradviz.comparison.compare_traces import compare
from autogradviz.distributed_runs.events_of_all_ranks_to_arrow import dataset, write_parquet
from autogradviz.distributed_runs.findings import RunFinding, find_problems
from autogradviz.distributed_runs.first_different_op import first_difference
from autogradviz.distributed_runs.gradient_differences import equal_gradients
from autogradviz.distributed_runs.rank_files import (
    COMPLETE,
    describe_end,
    describe_ranks,
    describe_unreadable,
    find_rank_files,
)
from autogradviz.distributed_runs.ranks_unlike_others import (
    find_odd_ranks,
    group_ranks,
    other_parameters_without_gradients,
)
from autogradviz.errors import AutogradvizWarning
from autogradviz.render.terminal_text import as_text, strip_controls
from autogradviz.support.import_rich_keep_random_state import Table, Text
from autogradviz.support.rank_and_trace_paths import as_path

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow.dataset as ds
    from rich.console import RenderableType

    from autogradviz.comparison.result import Comparison
    from autogradviz.distributed_runs.first_different_op import FirstDifference
    from autogradviz.distributed_runs.rank_files import RankFile, UnreadableFile
    from autogradviz.distributed_runs.ranks_unlike_others import OddRank
    from autogradviz.distributed_runs.scene import RunScene
    from autogradviz.event_log import RankSummary
    from autogradviz.render.distributed_runs import RunWidget
    from autogradviz.trace import Trace


_MOST: Final = 12
"""Ranks, and spans of ranks, that are listed separately."""
_MOST_READ: Final = 32
"""Ranks with other digests whose ops are read to decide whether they differ."""
_MOST_STEPS: Final = 8
"""Steps of each that are read."""


class Run:
    """The recordings of the ranks of one distributed run.

    ``autogradviz.load`` returns it for a folder. It reads the summaries of the files; the events of
    a rank are read when they are needed.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> run = autogradviz.load("run/")
        >>> run.ranks, run.groups, run.diagnose()
        ((0,), ((0,),), [])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Read the summaries of the files in a folder.

        Raises:
            FileNotFoundError: if there is no such folder.
            NotATraceError: if no rank wrote a file there, or none of them can be read.
        """
        self.folder = Path(folder)
        found = find_rank_files(self.folder)
        self._files = {file.rank: file for file in found.newest}
        self._earlier = tuple(found.earlier)
        self._unreadable = tuple(found.unreadable)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that wrote a file that can be read."""
        return tuple(self._files)

    @property
    def files(self) -> tuple[RankFile, ...]:
        """The file of each rank, with its summary."""
        return tuple(self._files.values())

    @property
    def unreadable(self) -> tuple[UnreadableFile, ...]:
        """The files named like traces of ranks that cannot be read; the others are read."""
        return self._unreadable

    @property
    def world_size(self) -> int:
        """The number of processes of the run, also of those that wrote no file."""
        return max(summary.world_size for summary in self.summaries.values())

    @cached_property
    def summaries(self) -> Mapping[int, RankSummary]:
        """The summary of each rank: its steps, collectives, and how its recording ended."""
        return {rank: file.summary for rank, file in self._files.items()}

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that should do the same, by device mesh or parameters."""
        return tuple(group_ranks(self.summaries))

    def trace(self, rank: int) -> Trace:
        """Return the recording of one rank.

        Raises:
            LookupError: if the rank wrote no file.
        """
        return traces.load(self._file(rank).path)

    def _file(self, rank: int) -> RankFile:
        if rank not in self._files:
            message = f"rank {rank} has no trace in {self.folder}"
            raise LookupError(message)
        return self._files[rank]

    @cached_property
    def _odd_ranks(self) -> tuple[OddRank, ...]:
        found = []
        read = 0
        for odd in find_odd_ranks(self.summaries, self.groups):
            # Shards differ in every step.
            is_first = not odd.step or odd.step == self.summaries[odd.rank].steps[0].step
            if odd.aspect != "ops" or not is_first or read == _MOST_READ:
                found.append(odd)
                continue
            read += 1
            checked = self._check_ops(odd)
            if checked is not None:
                found.append(checked)
        for group in self.groups:
            drifted = other_parameters_without_gradients(group, self.summaries)
            found += (
                odd
                for odd in islice(drifted, _MOST_READ)
                if equal_gradients(self._file(odd.rank).path, self._file(odd.reference).path)
            )
        return tuple(found)

    def _check_ops(self, odd: OddRank) -> OddRank | None:
        """Return a rank with other digests, and the first step in which its ops differ.

        None if only ops differ that depend on the shard of the rank; digests contain them.
        """
        steps = [{s.step: s for s in self.summaries[r].steps} for r in (odd.rank, odd.reference)]
        differing = (
            number
            for number in sorted(steps[0].keys() & steps[1].keys())
            if odd.step is not None
            and number >= odd.step
            and steps[0][number].digest != steps[1][number].digest
        )
        for number in islice(differing, _MOST_STEPS):
            if self.first_difference(odd.rank, odd.reference, number) is not None:
                ours, theirs = (each[number].ops or 0 for each in steps)
                detail = f"{ours:,} ops instead of {theirs:,}"
                return odd if number == odd.step else replace(odd, step=number, detail=detail)
        return None

    def odd_ranks(self) -> list[OddRank]:
        """Return the ranks that differ from the ranks that should do the same.

        Compares the digests of ops and collectives of each step, losses that are not finite, the
        norms of the final gradients, and the time until the first collective of a step.
        """
        return list(self._odd_ranks)

    def first_difference(
        self, rank: int, reference: int, step: int | None = None
    ) -> FirstDifference | None:
        """Return the first op at which a rank differs from another one.

        Args:
            rank: the rank.
            reference: the rank to compare it with.
            step: only this step; by default the first that differs.

        Raises:
            LookupError: if one of the ranks wrote no file.
        """
        files = self._file(rank), self._file(reference)
        if step is not None:
            return first_difference(*files, step)
        steps = [{s.step: s.digest for s in self.summaries[r].steps} for r in (rank, reference)]
        for number in sorted(steps[0].keys() & steps[1].keys()):
            if steps[0][number] != steps[1][number] or steps[0][number] is None:
                found = first_difference(*files, number)
                if found is not None:
                    return found
        return None

    def compare(self, first: int, second: int) -> Comparison:
        """Return the differences between the recordings of two ranks.

        Raises:
            LookupError: if one of them wrote no file.
        """
        return compare(self.trace(first), self.trace(second))

    def compare_with_single(self, single: Trace, tolerance: float | None = None) -> Comparison:
        """Return the first op at which this parallel run differs from a run of one process.

        The process and the ranks start from the same parameters and compute on the same data, of
        which each rank may take a part. The sums and norms of what the ranks compute are added up,
        by placement or by size, and compared op by op; so are the gradients that leaves are left
        with. Pipeline stages are not compared: no op runs on all of them.

        Args:
            single: recorded with ``record(norms=True)``, as the ranks were.
            tolerance: the relative difference up to which sums and norms count as equal. By
                default 1e-3, and 3e-2 for float16 and bfloat16.

        Returns:
            The first op with its module and line, and the gradients that differ, with global and
            local shapes; falsy if there is no difference. ``note`` says how much was compared.

        Raises:
            RecordingStateError: if one of them was not recorded with ``norms=True``, or a rank is
                missing.

        Example:
            >>> model.zero_grad()
            >>> with autogradviz.record(model, norms=True) as single:
            ...     model(x).sum().backward()
            >>> model.zero_grad()
            >>> with autogradviz.record(model, norms=True, path="run/"):
            ...     model(x).sum().backward()
            >>> bool(autogradviz.load("run/").compare_with_single(single))
            False
        """
        from autogradviz.distributed_runs.compare_with_one_process import compare_with_single

        traces_of_ranks = [self.trace(rank) for rank in self.ranks]
        return compare_with_single(
            single, traces_of_ranks, self.world_size, f"{self.folder.name}/", tolerance
        )

    @cached_property
    def _findings(self) -> tuple[RunFinding, ...]:
        return find_problems(tuple(self._files.values()), self.groups, self._odd_ranks)

    def diagnose(self) -> list[RunFinding]:
        """Return the problems, each once, with the ranks that have it.

        Findings about the run come first: collectives that not all ranks call, ranks that differ.
        Then those of single recordings. Of many ranks that did the same, at most 16 are searched,
        the odd ones and those that failed first.
        """
        return list(self._findings)

    def dataset(self) -> ds.Dataset:
        """Return all events as a ``pyarrow.dataset.Dataset`` with a column "rank".

        It reads the columns that a query needs, one batch after the other. A torn file is held in
        memory.
        """
        return dataset(list(self._files.values()))

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the events as Parquet: a folder with one folder "rank=3" for each rank.

        DuckDB, Polars, Dask, Ray and Spark read such a folder as one table.

        Args:
            path: the folder to write.
            overwrite: write into a folder that exists.

        Raises:
            OutputExistsError: if something exists there.
        """
        write_parquet(list(self._files.values()), Path(path), overwrite=overwrite)

    # --- pictures -------------------------------------------------------------------------

    def html(
        self, path: str | os.PathLike[str], *, redact: bool = False, overwrite: bool = False
    ) -> None:
        """Write an interactive report of the run: one HTML file that works offline.

        It has the ranks with their steps, the collectives, the findings, and the ops of ranks that
        differ. The own views of at most 16 ranks are in it, odd ranks first, if their recordings
        are small enough.

        Args:
            path: the file to write. An earlier report there is replaced.
            redact: leave source text and absolute paths out.
            overwrite: replace any regular file, not only a report.

        Raises:
            OutputExistsError: if another non-empty file exists.

        Example:
            >>> with autogradviz.record(model, path="run/"):
            ...     model(x).sum().backward()
            >>> autogradviz.load("run/").html("run.html")
        """
        from autogradviz.distributed_runs.html_report import save_redacted, write_html

        if not redact:
            write_html(self, path, overwrite=overwrite)
            return
        with TemporaryDirectory() as temporary:
            folder = Path(temporary, self.folder.resolve().name)
            save_redacted(self.files, folder)
            copy = Run(folder)
            copy._unreadable = self._unreadable
            copy.html(path, overwrite=overwrite)

    @cached_property
    def _scene(self) -> RunScene:
        from autogradviz.distributed_runs.scene import build_run_scene, read_totals

        return build_run_scene(self, read_totals(self))

    def widget(self) -> RunWidget:
        """Return the picture of the run for notebooks; a click opens the views of a rank.

        Example:
            >>> with autogradviz.record(model, path="run/"):
            ...     model(x).sum().backward()
            >>> widget = autogradviz.load("run/").widget()
        """
        from autogradviz.distributed_runs.scene import pack_run
        from autogradviz.render.distributed_runs import RunWidget

        def open_rank(rank: int) -> bytes:
            return self.trace(rank)._packed_scene()  # noqa: SLF001

        return RunWidget(pack_run(self._scene), open_rank=open_rank, words=self.__repr__)

    def show(self) -> None:
        """Display the picture of the run in a notebook; print its summary elsewhere."""
        ipython: Any = sys.modules.get("IPython")
        if ipython is not None and ipython.get_ipython() is not None:
            ipython.display.display(self)
        else:
            sys.stdout.write(f"{self}\n")

    def _repr_mimebundle_(self, **_: object) -> object:
        from autogradviz.render.distributed_runs import bundle_run_for_cell

        return bundle_run_for_cell(self.widget())

    def _display_(self) -> RunWidget:  # marimo calls it
        return self.widget()

    def summary(self) -> str:
        """Return ranks, steps, groups, ranks that differ, and how the recordings ended, as text."""
        return repr(self)

    def __repr__(self) -> str:
        return as_text(self._overview())

    def __rich__(self) -> RenderableType:
        return self._overview()

    def _overview(self) -> RenderableType:
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim")
        facts.add_column()
        for label, text in self._facts():
            facts.add_row(label, text)
        return strip_controls(facts)

    def _facts(self) -> list[tuple[str, Text | str]]:
        summaries = self.summaries
        steps = [len([s for s in each.steps if s.ended]) for each in summaries.values()]
        hosts = len({summary.host for summary in summaries.values()})
        size = sum(file.path.stat().st_size for file in self._files.values())
        present = f"{len(summaries):,} of {self.world_size:,}"
        span = (
            f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,}"
        )
        facts: list[tuple[str, Text | str]] = [
            ("ranks", f"{present} on {hosts:,} host{'s' * (hosts > 1)}, {format_bytes(size)}"),
            ("steps", span),
            ("groups", ", ".join(map(describe_ranks, self.groups))),
        ]
        odd = {each.rank for each in self._odd_ranks}
        facts.append(("equal", f"{len(summaries) - len(odd):,} of {len(summaries):,} ranks"))
        for each in self._odd_ranks[:_MOST]:
            where = "" if each.step is None else f" in step {each.step:,}"
            facts.append(("", f"rank {each.rank}: {each.aspect}{where}, {each.detail}"))
        if len(self._odd_ranks) > _MOST:
            facts.append(("", f"{len(self._odd_ranks) - _MOST:,} others"))
        ended: dict[str, list[int]] = {}
        for rank, summary in summaries.items():
            ended.setdefault(describe_end(summary), []).append(rank)
        for text, ranks in ended.items():
            style = "" if text == COMPLETE else "red"
            facts.append(("ended", Text(f"{describe_ranks(ranks)}: {text}", style=style)))
        if self._earlier:
            listed = describe_ranks([file.rank for file in self._earlier])
            facts.append(("left out", f"{listed}: of an earlier run, or before a restart"))
        unreadable = self._unreadable
        facts += (
            ("unreadable", Text(describe_unreadable(each, self._files), style="red"))
            for each in unreadable[:_MOST]
        )
        if len(unreadable) > _MOST:
            facts.append(("", f"{len(unreadable) - _MOST:,} others"))
        known = summaries.keys() | {each.rank for each in unreadable}
        missing = sorted(set(range(self.world_size)) - known)
        if missing:
            facts.append(
                ("missing", Text(f"{describe_ranks(missing)} wrote no trace", style="red"))
            )
        return facts


def load(path: str | os.PathLike[str]) -> Trace | Run:
    """Return the trace in a file, or the run in a folder; works without torch.

    Of a damaged or unfinished file, the readable part is returned, and ``trace.log.problem`` says
    what is missing. Nothing in the file is executed.

    Args:
        path: a file written by ``Trace.save``, ``record(path=...)`` or ``autogradviz run``, or
            the folder to which the ranks of a distributed run wrote theirs.

    Raises:
        TypeError: if it is no path.
        FileNotFoundError: if there is no such file.
        NotATraceError: if the file is not a trace, or a newer version of autogradviz wrote it; of
            a folder, if that is so for all files. ``Run.unreadable`` lists those that are left out.

    Example:
        >>> trace.save("step.agv")
        >>> autogradviz.load("step.agv").title
        'step.agv'
    """
    found = open_any(as_path(path, "load() takes the path of a trace"))
    if not isinstance(found, Run) and not found.log:
        warnings.warn(f"{path}: {found.log.problem}", AutogradvizWarning, stacklevel=2)
    return found


def open_any(path: Path) -> Trace | Run:
    """Return the trace in a file, or the run in a folder, without a warning about a bad file."""
    return Run(path) if path.is_dir() else traces.load(path)
