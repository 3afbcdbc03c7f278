"""The statements of the user's source that may have written a piece of state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.state_paths import attribute_name, base, base_name, item_key
from autogradviz.diagnose.source.assignments import parameters, passed_as
from autogradviz.diagnose.source.writes_by_name_and_in_threads import Write, indirect_writes, writes

if TYPE_CHECKING:
    from autogradviz.analysis import Region
    from autogradviz.diagnose.blame.state_paths import Path
    from autogradviz.diagnose.evidence.evidence import Evidence


FileWrite = tuple[str, Write]  # file and statement

_SEQUENTIAL = "checkpoint_sequential"  # its regions keep the list of functions passed to it


def find_writes(evidence: Evidence, region: Region, path: Path, *, loose: bool) -> list[FileWrite]:
    """Return the statements that write, or may write, the state at a path.

    ``scale = ...`` does not write ``config.scale``; it is returned only if ``loose`` is set and
    nothing else fits. Rebinding a name does not write the argument of a region.
    """
    name, key = attribute_name(path), item_key(path)
    argument = _argument_names(evidence, region, base_name(path))
    direct = [
        (filename, write)
        for filename in evidence.user_files
        for each in dict.fromkeys((name, *argument))
        for write in writes(filename, each)
        if not (argument and write.rebinds)
    ]
    attribute = len(base(path)) > 1
    fitting = [c for c in direct if argument or c[1].attribute in {attribute, None} or c[1].alias]
    known = {(filename, write.lineno) for filename, write in direct}
    indirect = [
        (filename, write)
        for filename in evidence.user_files
        for write in indirect_writes(filename, name, key)
        if (filename, write.lineno) not in known
    ]
    found = (fitting or (direct if loose else [])) + indirect
    return [c for c in found if c[1].function.rpartition(".")[2] != "__init__"]


def _argument_names(evidence: Evidence, region: Region, name: str) -> tuple[str, ...]:
    """Return the names of a region's argument in the region and at its call, () if it is none."""
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
