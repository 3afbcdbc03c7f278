"""An exception of PyTorch that no other rule explains: where the operands come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import plural
from autogradviz.diagnose.blame.gradient_is_none import (
    end_of_gradient,
    raised_by_grad_of_none,
    without_gradient,
)
from autogradviz.diagnose.evidence.operand_origins import (
    failed_op,
    operand_origins,
    raised_by_pytorch,
    suspected,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import describe_tensor, join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "operation-refused",
    mechanism="refuse",
    when=ErrorMessage(),
    group="operation refused",
    fallback=True,
)
def operation_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an exception that an op, a backward or a function of PyTorch raised."""
    analysis, error = evidence.analysis, evidence.analysis.error
    if error is None:
        return
    if raised_by_grad_of_none(evidence):
        yield _gradient_is_none(evidence)
        return
    graph = evidence.causal_graph
    failed = failed_op(graph)
    if not raised_by_pytorch(evidence, graph):
        return
    message = next(iter(error.message.strip().splitlines()), "")
    kind = error.type_name.rpartition(".")[2]
    lines: list[str | SourceLocation | None] = ["This line raised:", error.location]
    origins = [] if failed is None else operand_origins(graph, failed)
    for origin in origins:
        assert failed is not None
        tensor = analysis.tensors[graph.inputs[failed][origin.position]]
        what = f"Operand {origin.position + 1} of {graph.op_names[failed]} is "
        what += describe_tensor(tensor) + (f", {origin.name}" if origin.name else "")
        source = f". It has its {origin.what} from this line:" if origin.location else "."
        lines += [what + source, origin.location]
    suspects = [origin.location for origin in suspected(origins)]
    yield Draft(
        title=f"{kind}: {message}"[:200].rstrip(". "),
        culprit=next(iter(suspects), error.location),
        victim=error.location,
        explanation=[*lines, 'trace.why("error") lists the lines that may be changed.'],
        fix="# give the operands the shapes, dtypes and graphs that the operator takes",
        confidence="hint",
        evidence=(error,),
    )


def _gradient_is_none(evidence: Evidence) -> Draft:
    """Return the draft of an exception of Python about a ``.grad`` that is None."""
    error = evidence.analysis.error
    place = error.location if error is not None else None
    missing = without_gradient(evidence)
    end = end_of_gradient(evidence, missing) if missing else None
    names = [evidence.analysis.leaf_name(each) for each in missing]
    what = f"{plural(len(names), 'parameter')} got no gradient: {join_names(names)}."
    return Draft(
        title="A statement reads a gradient that is None",
        culprit=end or place,
        victim=place,
        explanation=[
            f"This line raised {error.message.strip()!r}:" if error is not None else "",
            place,
            what if names else "No backward had run.",
            "Their way to the loss ends here:" if end is not None else "",
            end,
            "A parameter that takes no part in the loss has no gradient, and neither has one whose "
            "gradient was cleared.",
        ],
        fix="# use the parameter in the loss, or skip it: if p.grad is not None"
        if end is None
        else "# let the gradient pass here, or skip the parameter: if p.grad is not None",
        confidence="likely",
        evidence=(error,),
    )
