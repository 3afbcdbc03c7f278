"""Rules: a function that is compiled again and again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.causes_of_recompute_difference import (
    find_guard_writer,
    guarded_name,
)
from autogradviz.diagnose.finding_text import join_names
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.events import CompileStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.compiled_region_types import (
        Recompile,
    )
    from autogradviz.diagnose.evidence.evidence import Evidence


_MISMATCH: Final = re.compile(r"^tensor '.+' (\w+) mismatch")
_FEWEST_COMPILATIONS: Final = (
    2  # of one value; Dynamo makes a number dynamic at its first recompilation
)


@rule("recompile-storm", mechanism="cost", when=Always(), group="compilation")
def recompile_storm(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the value whose guard failed most often."""
    groups: dict[tuple[str, str, str], list[Recompile]] = {}
    for each in evidence.analysis.recompiles:
        name = guarded_name(each.guard)
        # A tensor with another size and another requires_grad fails two guards, each of them once.
        mismatch = _MISMATCH.search(each.guard)
        kind = mismatch[1] if mismatch else ""
        groups.setdefault((each.function, name, kind), []).append(each)
    for (_, name, _), found in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        limited = found[-1].limit and found[-1].count + 1 >= found[-1].limit
        if len(found) >= _FEWEST_COMPILATIONS or limited:
            yield _recompile_storm(evidence, name, found)


def _recompile_storm(evidence: Evidence, name: str, found: list[Recompile]) -> Draft:
    last = found[-1]
    reading = last.location
    starts = evidence.analysis.log.of(CompileStarted)
    ids = {each.compile_id for each in found}
    called = [
        evidence.analysis.location(e.stack_id)
        for e in starts
        if e.compile_id in ids and e.trigger == "dynamo"
    ]
    caller = called[-1] if called else None
    writer = find_guard_writer(evidence, last)
    limited = bool(last.limit) and last.count + 1 >= last.limit
    return Draft(
        title=f"{last.function} was compiled {len(found) + 1} times because {name or 'a value'} "
        "changed",
        culprit=writer or caller or reading,
        victim=reading,
        explanation=[
            f"Dynamo compiled {last.function} for the value that {name or 'a variable'} had, "
            "which it reads here:",
            reading,
            "The guards that failed: " + join_names([each.guard for each in found]) + ".",
            "This line changes it:" if writer is not None else "It was called here:",
            writer or caller,
            f"After {last.limit} compilations Dynamo runs the function eagerly"
            + (", which happens from now on." if limited else "; there were ")
            + ("" if limited else f"{last.count + 1}."),
        ],
        fix=_fix(name, last),
        confidence="hint",
        evidence=(*[each.seq for each in found],),
    )


def _fix(name: str, recompile: Recompile) -> str:
    if "size" in recompile.guard or "stride" in recompile.guard:
        return "torch.compile(..., dynamic=True)  # or torch._dynamo.mark_dynamic(x, 0)"
    last = name.rpartition(".")[2] or "value"
    if not _NUMBER.search(recompile.guard):
        return f"# read {last} outside the compiled function"
    return (
        f"# keep the value in a tensor: self.register_buffer({last!r}, torch.tensor(...))\n"
        f"# and write it in place: self.{last}.fill_(...)"
    )


_NUMBER: Final = re.compile(r"== -?[\d.]+(e[-+]?\d+)?$")
