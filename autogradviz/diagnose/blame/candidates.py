"""Which statements of the user's may have written what differs between a region's two runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from autogradviz.diagnose.formatting import attribute_name, base_name
from autogradviz.diagnose.source.aliases import parameters, passed_as
from autogradviz.diagnose.source.indirect_writes import indirect_writes
from autogradviz.diagnose.source.writes import Write, writes

if TYPE_CHECKING:
    from autogradviz.analysis import Region
    from autogradviz.diagnose.evidence.facts import Evidence

Candidate = tuple[str, Write]  # file and statement

_SEQUENTIAL = "checkpoint_sequential"  # its regions keep the list of functions that it was given


def item_key(state_name: str) -> str | None:
    """Return the last key of "config['mode']" as source, None of what is no item."""
    found = re.search(r"\[([^\[\]]*)\]$", state_name)
    return found[1] if found is not None else None


def find_candidates(
    evidence: Evidence, region: Region, state_name: str, *, loose: bool
) -> list[Candidate]:
    """Return the statements that write, or may write, what has that name.

    ``scale = ...`` does not write ``config.scale``; it counts where ``loose``, when nothing else
    does. What was given to the region as an argument cannot be written by giving its name to
    something else.
    """
    given = _given(evidence, region, base_name(state_name))
    named = [
        (filename, write)
        for filename in evidence.user_files
        for name in dict.fromkeys((attribute_name(state_name), *given))
        for write in writes(filename, name)
        if not (given and write.rebinds)
    ]
    unnamed = [
        (filename, write)
        for filename in evidence.user_files
        for write in indirect_writes(filename, attribute_name(state_name), item_key(state_name))
    ]
    attribute = "." in base_name(state_name)
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
