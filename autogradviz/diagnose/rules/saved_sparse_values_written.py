"""The values of a saved sparse tensor were written.

A sparse tensor shares the memory of its values, and has its own version counter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.judge_silent_write import reads_of_saves
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import in_module, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("silent-write", mechanism="write", when=NoError(), group="saved tensor", after="silent_write")
def sparse_parts_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write to the values of each saved sparse tensor."""
    made = {t.tensor_id: op for op in evidence.analysis.ops if op.name.startswith("_sparse_")
            and "tensor" in op.name for t in op.outputs}  # fmt: skip
    reads = list(reads_of_saves(evidence)) if made else []
    for node, saved, unpack in reversed(reads):  # the gradients of earlier nodes are wrong as well
        maker = made.get(saved.tensor.tensor_id)
        if maker is not None and saved.tensor.storage_id is None:
            for part in maker.inputs:
                for write, _ in evidence.overwrites(part, saved.saved_seq, unpack.seq)[:1]:
                    yield _draft(node, saved, maker, write, unpack.seq)


def _draft(node: Node, saved: SavedTensor, maker: Op, write: Op, read_seq: int) -> Draft:
    victim = saved.location or node.location
    return Draft(
        title=f"The values of {node.name}.{saved.slot} were written before backward",
        culprit=write.location,
        victim=victim,
        explanation=[
            f'{node.name}{in_module(node.module)} saved a sparse tensor as "{saved.slot}":',
            victim,
            "It was created here, and shares the memory of its values:",
            maker,
            f"Then {write.name} at {short_location(write.location)} wrote them:",
            write,
            "The sparse tensor has its own version counter, which did not change: the "
            "gradient was computed from the new values, and nothing was raised.",
        ],
        fix="torch.sparse_coo_tensor(indices, values.clone(), size)\n"
        "# or write the values after backward()",
        confidence="likely",
        evidence=(saved, write, read_seq, node),
    )
