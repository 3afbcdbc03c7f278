"""Rules: a line that the compiler could not trace, and an op that raised in compiled code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.compiled_code import (
    call_line,
    calling_line,
    op_name,
    op_place,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.finding_text import short_location
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.event_log.stacks import line_of_file
from autogradviz.events import ErrorRaised, FrameSeen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.compiled_region_types import (
        CompiledOp,
        CompiledRegion,
    )
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


_USER_CODE: Final = "from user code:"
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_ASSIGNED: Final = re.compile(r"^(?P<name>\w+) = ")
_KERNEL: Final = re.compile(r"\b(?:cpp|triton)_\w*?fused_(?P<ops>\w+?)_\d+\b")
_EXTERN: Final = re.compile(r"\b(?:extern_kernels|aten|torch\.ops\.aten)\.(?P<op>\w+)")


@rule(
    "compiled-op-failed",
    mechanism="refuse",
    when=ErrorMessage(),
    group="region",
    after="reentrant-no-grad-input",
)
def compiled_op_failed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the op that failed, or for the line that the compiler could not trace."""
    error = evidence.analysis.error
    if error is None:
        return
    traced = _traced_line(evidence, error.message)
    if traced is not None:
        yield Draft(
            title=f"Compiling failed at {short_location(traced)}: "
            f"{error.message.partition(chr(10))[0]}",
            culprit=traced,
            victim=evidence.raised_at(),
            explanation=[
                "This line could not be traced by the compiler:",
                traced,
                *_explanation(error.message),
                "It was reached from here:",
                evidence.raised_at(),
            ],
            fix='torch.compiler.set_stance("force_eager")  # to see the exception in eager code',
            evidence=(error,),
        )
        return
    found = _failed_op(evidence)
    if found is None:
        return
    region, op, certain = found
    ran = runs_by_node(evidence).get(error.node_id) if error.node_id is not None else None
    in_backward = ran is not None
    forward = op if op.forward_op is None or _has_own_line(op) else op.forward_op
    caller = (
        evidence.backward_line(error.backward_id) if in_backward else _caller(evidence)
    ) or region.compiled_by
    yield Draft(
        title=f"{op_place(forward)} failed in the {'backward of the ' if in_backward else ''}"
        f"{region_name(region)}: {error.message.partition(chr(10))[0]}",
        culprit=forward,
        victim=caller,
        explanation=[
            f"{error.type_name.rpartition('.')[2]} was raised by {op_name(op)} in the "
            f"{'backward of the ' if in_backward else ''}{region_name(region)}"
            + (f", the gradient of {op_name(forward)}" if forward is not op else "")
            + ". It comes from this line:",
            forward,
            "The region had been called here:" if ran is not None else "",
            call_line(evidence, ran.run) if ran is not None else None,
            "The backward was called here:" if in_backward else "The region was called here:",
            caller,
        ],
        fix='# to see the exception in eager code:\ntorch.compiler.set_stance("force_eager")',
        confidence="certain" if certain and forward.location is not None else "likely",
        evidence=(error, evidence.analysis.graph.nodes.get(ran.run.node_id) if ran else None),
    )


def _has_own_line(op: CompiledOp) -> bool:
    """Return whether an op of a backward is on another line than its forward op.

    The program wrote such an op itself, in the backward of a custom Function.
    """
    other = None if op.forward_op is None else op.forward_op.location
    here = op.location
    if here is None or other is None or op.sums_gradients:
        return False
    return (here.filename, here.lineno) != (other.filename, other.lineno)


def _traced_line(evidence: Evidence, message: str) -> SourceLocation | None:
    """Return the innermost line of user code that Dynamo names in the message of its exception."""
    _, found, text = message.partition(_USER_CODE)
    library = {e.filename for e in evidence.analysis.log.of(FrameSeen) if e.library}
    frames = [each for each in _FRAME.finditer(text) if each["file"] not in library]
    if not found or not frames:
        return None
    last = frames[-1]
    lines = text[last.end() :].strip("\n").splitlines()
    text = lines[0].strip() if lines else ""
    cell = evidence.analysis.cells.get(last["file"])
    return line_of_file(last["file"], int(last["line"]), last["function"], text, cell)


def _explanation(message: str) -> list[str]:
    lines = [line.strip() for line in message.splitlines()]
    wanted = ("Explanation: ", "Hint: ")
    return [line for line in lines if line.startswith(wanted)][:3]


def _caller(evidence: Evidence) -> SourceLocation | None:
    """Return the innermost line of the traceback that is not inside a compiled function."""
    raised = evidence.analysis.log.of(ErrorRaised)
    return calling_line(evidence, raised[-1].stack_id) if raised else None


def _failed_op(evidence: Evidence) -> tuple[CompiledRegion, CompiledOp, bool] | None:
    """Return the op at which generated code raised, its region, and whether it is surely that."""
    error, log = evidence.analysis.error, evidence.analysis.log
    event = next((e for e in reversed(log.of(ErrorRaised))), None)
    if error is None or event is None:
        return None
    ran = runs_by_node(evidence).get(error.node_id) if error.node_id is not None else None
    regions = [ran.region] if ran is not None else [*reversed(evidence.analysis.compiled_regions)]
    for frame in evidence.analysis.stack(event.stack_id):
        if not _is_generated(frame):
            continue
        for region in regions:
            ops = region.backward_ops if ran is not None else region.forward_ops
            found = _op_of_line(frame.text, ops)
            if found is not None:
                return region, *found
    return None


def _is_generated(frame: SourceLocation) -> bool:
    return frame.filename.startswith("<eval_with_key>") or "torchinductor_" in frame.filename


def _op_of_line(text: str, ops: tuple[CompiledOp, ...]) -> tuple[CompiledOp, bool] | None:
    """Return the op that a line of generated code computes, and whether no other one fits."""
    assigned = _ASSIGNED.match(text)
    for op in ops:
        if assigned is not None and op.name == assigned["name"]:
            return op, True
    kernel, extern = _KERNEL.search(text), _EXTERN.search(text)
    if kernel is None and extern is None:
        return None
    names = kernel["ops"] if kernel is not None else extern["op"] if extern is not None else ""
    fitting = [
        op
        for op in ops
        if (op_name(op).strip("_") in names if kernel is not None else op_name(op) == names)
    ]
    indexed = [op for op in fitting if op_name(op) in _CHECKED]
    best = indexed or fitting
    return (best[0], len(best) == 1) if best else None


_CHECKED: Final = frozenset(
    {"embedding", "index", "gather", "index_select", "index_put", "scatter"}
)
"""Ops whose kernels raise if an index is out of range."""
