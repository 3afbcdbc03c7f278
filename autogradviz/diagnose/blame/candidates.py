"""Which statements of the user's may have written what differs between a region's two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.state_paths import attribute_name, base, base_name, item_key
from autogradviz.diagnose.source.aliases import parameters, passed_as
from autogradviz.diagnose.source.indirect_writes import indirect_writes
from autogradviz.diagnose.source.writes import Write, writes

if TYPE_CHECKING:
    from autogradviz.analysis import Region
    from autogradviz.diagnose.blame.state_paths import Path
    from autogradviz.diagnose.evidence.facts import Evidence

Candidate = tuple[str, Write]  # file and statement

_SEQUENTIAL = "checkpoint_sequential"  # its regions keep the list of functions that it was given


def find_candidates(
    evidence: Evidence, region: Region, path: Path, *, loose: bool
) -> list[Candidate]:
    """Return the statements that write, or may write, what has that name.

    ``scale = ...`` does not write ``config.scale``; it counts where ``loose``, when nothing else
    does. What was given to the region as an argument cannot be written by giving its name to
    something else.
    """
    name, key = attribute_name(path), item_key(path)
    given = _given(evidence, region, base_name(path))
    named = [
        (filename, write)
        for filename in evidence.user_files
        for each in dict.fromkeys((name, *given))
        for write in writes(filename, each)
        if not (given and write.rebinds)
    ]
    unnamed = [
        (filename, write)
        for filename in evidence.user_files
        for write in indirect_writes(filename, name, key)
    ]
    attribute = len(base(path)) > 1
    fitting = [c for c in named if given or c[1].attribute in {attribute, None} or c[1].alias]
    known = {(filename, write.lineno) for filename, write in named}
    found = (fitting or (named if loose else [])) + [
        c for c in unnamed if (c[0], c[1].lineno) not in known
    ]
    return [c for c in found if c[1].function.rpartition(".")[2] != "__init__"]


def _given(evidence: Evidence, region: Region, name: str) -> tuple[str, ...]:
    """Return what the caller knows an argument of the region by, () where it is none."""
    place = region.location
    if place is None:
        return ()
    if region.function.startswith(f"{_SEQUENTIAL}.") and name == "functions":
        passed = passed_as(place.filename, place.lineno, -1, name)
        return (passed,) if passed else ()
    for filename in evidence.user_files:
        for function, named in parameters(filename):
            if function == region.function and name in named:
                passed = passed_as(place.filename, place.lineno, named.index(name), name)
                return (name, passed) if passed else (name,)
    return ()
