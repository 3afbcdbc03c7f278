"""A leaf was given other memory between forward and backward: ``weight.data = ...``.

A node that saved the leaf itself finds the new memory there. The counter stays with the leaf, and
nothing counts this as a write.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.blame.window import REACHABLE
from autogradviz.diagnose.evidence.gradient_flow import storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, slot, where
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.rules.silent_write import until_read
from autogradviz.diagnose.source import index as source
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("silent-write", when=NoError(), priority=300, at_most=None)
def find_other_memory(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first saved leaf whose ``.data`` was something else in backward."""
    nodes = evidence.analysis.graph.nodes.values()
    leaves = {n.parameter.tensor.tensor_id for n in nodes if n.parameter is not None}
    for node in sorted(nodes, key=lambda n: n.order):
        for saved in node.saved:
            if saved.tensor.tensor_id not in leaves or saved.packed_by != "pytorch":
                continue
            found = _read(evidence, node, saved, leaves)
            if found is not None:
                yield _describe(evidence, node, saved, found)
                return


class _Found(NamedTuple):
    """What was found of one saved leaf."""

    op: Op  # that saved it
    read: Op  # that found other memory
    differs: bool  # in content, too, as far as that is known


def _read(evidence: Evidence, node: Node, saved: SavedTensor, leaves: set[int]) -> _Found | None:
    """Return the first read of a saved leaf where it lies in memory that its op never met."""
    op = node.op
    if op is None or saved.tensor.storage_id in storages((*op.inputs, *op.outputs)):
        return None
    # The leaf as it was: what else is a leaf, or a buffer, is still itself.
    place = next(
        (
            place
            for place, tensor in enumerate(op.inputs)
            if _alike(tensor, saved.tensor)
            and tensor.tensor_id not in leaves
            and tensor.storage_id not in evidence.buffers
        ),
        None,
    )
    if place is None:
        return None
    before = op.input_hashes[place] if op.input_hashes else NO_ID
    for read in evidence.analysis.ops:
        if read.backward_node_id == node.node_id and read.phase == "backward":
            hashes = read.input_hashes or (NO_ID,) * len(read.inputs)
            for tensor, content in zip(read.inputs, hashes, strict=False):
                if tensor.tensor_id == saved.tensor.tensor_id:
                    known = NO_ID not in {before, content}
                    return None if known and content == before else _Found(op, read, known)
    return None


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _assigned(evidence: Evidence, op: Op, read: Op, tensor_id: int) -> SourceLocation | None:
    """Return the line that assigned ``.data``, or the last one that made what it was given."""
    passage = until_read(evidence, op, read.seq)
    found = [
        (
            -passage.ran_in_window(filename, function, node.lineno),
            function.endswith("__enter__"),  # a block that was left ran its end last
            filename,
            node.lineno,
            function,
        )
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        for node in source.own_nodes(owner)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Attribute) and t.attr == "data" for t in node.targets)
    ]
    if found and -min(found)[0] >= REACHABLE:
        return source.location(*min(found)[2:])
    made = (
        each.location
        for each in evidence.analysis.ops
        if op.seq < each.seq < read.seq
        and each.phase == "forward"
        and any(tensor.tensor_id == tensor_id for tensor in each.outputs)
    )
    return next(made, None)


def _describe(evidence: Evidence, node: Node, saved: SavedTensor, found: _Found) -> Finding:
    op, read, differs = found
    named = evidence.leaf_name(saved.tensor.tensor_id)
    culprit = _assigned(evidence, op, read, saved.tensor.tensor_id)
    return Finding(
        slug="silent-write",
        title=f"{slot(saved, node.name)} lies in other memory than when it was saved",
        culprit=culprit,
        victim=saved.location or node.location,
        explanation=fit(
            [
                f'{node.name}{where(node.module)} saved {named} itself as "{saved.slot}":',
                quoted(saved.location or node.location),
                "Before backward its .data was set to another tensor:",
                quoted(culprit),
                "The leaf keeps its version counter, so PyTorch's check saw nothing, and backward "
                "found the new values: the gradient is not that of the loss that was computed."
                if differs
                else "Where the new values differ from the old ones the gradient is wrong, and "
                "nothing is raised; record(fingerprints=True) compares them.",
            ]
        ),
        fix="# set .data after backward(); or give the forward a tensor of its own:\n"
        "# torch.func.functional_call(module, {name: tensor}, inputs)",
        confidence="likely" if differs else "hint",
        events=(op.seq, read.seq),
        nodes=(node.node_id,),
    )
