"""A sparse tensor was saved, and the values that it was made of were written.

It shares their memory, and has a version counter of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.rule import NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("silent-write", when=NoError(), priority=280, at_most=None)
def find_written_sparse(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first write to what a saved sparse tensor was made of."""
    made = {t.tensor_id: op for op in evidence.analysis.ops if op.name.startswith("_sparse_")
            and "tensor" in op.name for t in op.outputs}  # fmt: skip
    for node in evidence.analysis.graph.nodes.values() if made else ():
        for saved in node.saved:
            maker = made.get(saved.tensor.tensor_id)
            if maker is None or saved.tensor.storage_id is not None:
                continue
            for unpack in saved.unpacks:
                for part in maker.inputs:
                    writes = evidence.writes_between(part.storage_id, saved.saved_seq, unpack.seq)
                    if writes:
                        yield _describe(node, saved, maker, writes[0], unpack.seq)
                        return


def _describe(node: Node, saved: SavedTensor, maker: Op, write: Op, read_seq: int) -> Finding:
    victim = saved.location or node.location
    return Finding(
        slug="silent-write",
        title=f"What {node.name}.{saved.slot} is made of was written before backward",
        culprit=write.location,
        victim=victim,
        explanation=fit(
            [
                f'{node.name}{where(node.module)} saved a sparse tensor as "{saved.slot}":',
                quoted(victim),
                "It was made here, and shares the memory of the values that it was made of:",
                quoted(maker.location),
                f"Then {write.name} at {short(write.location)} wrote them:",
                quoted(write.location),
                "The sparse tensor has a version counter of its own, which stayed as it was: the "
                "gradient was computed from the new values, and nothing was raised.",
            ]
        ),
        fix="torch.sparse_coo_tensor(indices, values.clone(), size)\n"
        "# or write the values after backward()",
        confidence="likely",
        events=(saved.saved_seq, write.seq, read_seq),
        nodes=(node.node_id,),
    )
