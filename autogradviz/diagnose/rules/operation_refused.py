"""An exception of PyTorch that no other rule explains: where the operands come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.operand_origins import (
    failed_op,
    operand_origins,
    raised_by_pytorch,
    suspected,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import describe_tensor

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
