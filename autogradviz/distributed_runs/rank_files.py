"""The files of a run, and their summaries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz import event_log
from autogradviz.errors import NotATraceError
from autogradviz.support.rank_and_trace_paths import is_rank_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from autogradviz.event_log import RankSummary

COMPLETE: Final = "complete"
"""How the recording of a rank ended that nothing interrupted."""

_MOST_SPANS: Final = 12  # of ranks that are listed
_NUMBERS: Final = re.compile(r"rank-(\d+)(?:\.(\d+))?(?:-(\d+))?(\.last)?")


class RankFile(NamedTuple):
    """The file of one rank.

    Attributes:
        rank: the number of the process, from 0.
        path: where the recording is.
        summary: what is known of it without reading its events.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> [file.path.name for file in autogradviz.load("run/").files]
        ['rank-00000.agv']
    """

    rank: int
    path: Path
    summary: RankSummary


class UnreadableFile(NamedTuple):
    """A file that is named like the trace of a rank, and cannot be read.

    Attributes:
        rank: the number in its name.
        path: the file.
        reason: why it cannot be read, with its name: one line.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> _ = pathlib.Path("run/rank-00001.agv").write_bytes(b"")
        >>> [file.path.name for file in autogradviz.load("run/").unreadable]
        ['rank-00001.agv']
    """

    rank: int
    path: Path
    reason: str


class RankFiles(NamedTuple):
    """The files in the folder of a run, by rank."""

    newest: list[RankFile]
    """Of the newest run, after its last restart."""

    earlier: list[RankFile]
    """Of ranks without a file in that run: an earlier run of more ranks, or before a restart."""

    unreadable: list[UnreadableFile]
    """Newer than the file of their rank, if it has another one."""


def find_rank_files(folder: Path) -> RankFiles:
    """Return the newest file of each rank in a folder that can be read.

    Raises:
        FileNotFoundError: if there is no such folder.
        NotATraceError: if no rank wrote a file there, or none of them can be read.
    """
    found_of: dict[int, list[tuple[tuple[int, ...], Path]]] = {}
    for path in folder.iterdir():
        if is_rank_file(path):
            found = _NUMBERS.match(path.name)
            assert found is not None
            rank, restart, count = (int(number or 0) for number in found.groups()[:3])
            # The last steps only if there is no trace.
            age: tuple[int, ...] = restart, found[4] is None, count
            found_of.setdefault(rank, []).append((age, path))
    restarts: dict[RankFile, int] = {}
    unreadable: list[UnreadableFile] = []
    for rank, found_files in sorted(found_of.items()):
        for age, path in sorted(found_files, reverse=True):
            try:
                summary = _read_summary(path)
            except (OSError, NotATraceError) as error:
                unreadable.append(UnreadableFile(rank, path, _reason(path, error)))
            else:
                restarts[RankFile(rank, path, summary)] = age[0]
                break
    if not restarts:
        first = unreadable[0].reason if unreadable else "There are no files like rank-00000.agv."
        message = f"{folder} is a folder without a readable trace of a rank. {first}"
        raise NotATraceError(message)
    earlier = _find_earlier(restarts)
    newest = [each for each in restarts if each not in earlier]
    summaries = event_log.with_common_rounds([each.summary for each in newest])
    pairs = zip(newest, summaries, strict=True)
    return RankFiles([file._replace(summary=own) for file, own in pairs], earlier, unreadable)


def _reason(path: Path, error: OSError | NotATraceError) -> str:
    if isinstance(error, OSError):
        return f"{path.name}: {error.strerror or error}"
    return " ".join(str(error.args[0]).replace(str(path), path.name).splitlines())


def _read_summary(path: Path) -> RankSummary:
    """Return the summary of a file; that of the last steps is not complete, as more may follow."""
    summary = event_log.read_summary(path)
    is_last_steps = path.stem.endswith(".last")
    return replace(summary, is_complete=False) if is_last_steps else summary


def _find_earlier(restarts: Mapping[RankFile, int]) -> list[RankFile]:
    """Return the files that an earlier run, or the same one before its last restart, wrote.

    torchrun counts the restarts of each host separately.

    Args:
        restarts: the number of the restart in the name of each file.
    """
    # Of a file that is torn before its first events, the run is not known.
    restarts = {file: at for file, at in restarts.items() if file.summary.started_at_ns}
    if not restarts:
        return []
    last = max(restarts, key=lambda file: file.summary.started_at_ns).summary.run_name
    newest_on: dict[str, int] = {}
    for file, restart in restarts.items():
        if file.summary.run_name == last:
            host = file.summary.host
            newest_on[host] = max(newest_on.get(host, 0), restart)
    started: dict[str, list[int]] = {}
    others: list[RankFile] = []
    for file, restart in restarts.items():
        own = file.summary
        if own.run_name == last and restart == newest_on[own.host]:
            started.setdefault(own.host, []).append(own.started_at_ns)
        else:
            others.append(file)
    first = min(map(min, started.values()))
    return [
        file
        for file in others
        if file.summary.started_at_ns + file.summary.duration_ns
        < (min(started[file.summary.host]) if file.summary.run_name == last else first)
    ]


def describe_ranks(ranks: Sequence[int]) -> str:
    """Return "rank 3", "ranks 0-3, 7 and 9", or with a number of others."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    texts = [f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in spans[:_MOST_SPANS]]
    if len(spans) > _MOST_SPANS:
        texts.append("others")
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(texts)}"


def describe_end(summary: RankSummary) -> str:
    """Return a text about the end of a rank's recording, with the line."""
    if summary.error is not None:
        name, message, line = summary.error
        text = f"{name}: {message.splitlines()[0][:100]}" if message else name
        return f"{text} at {PurePath(line.filename).name}:{line.lineno}" if line else text
    if summary.interrupted is not None:
        reason, line = summary.interrupted
        return f"{reason} at {PurePath(line.filename).name}:{line.lineno}" if line else reason
    return COMPLETE if summary.is_complete else "stopped without an end"


def describe_unreadable(file: UnreadableFile, files: Mapping[int, RankFile]) -> str:
    """Return one line about a file that cannot be read.

    Args:
        file: the file.
        files: the files that are read, by rank.
    """
    if file.rank not in files:
        return f"rank {file.rank:,} is left out: {file.reason}"
    return f"rank {file.rank:,} is read from {files[file.rank].path.name}: {file.reason}"
