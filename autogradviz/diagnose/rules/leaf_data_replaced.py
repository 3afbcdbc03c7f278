"""A leaf's memory was replaced between forward and backward: ``weight.data = ...``.

A node that saved the leaf reads the new memory. The version counter stays with the leaf, and the
assignment does not count as a write.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.blame.code_run_between import REACHABLE
from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.blame.raw_memory_or_thread_write import window_until_read
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import in_module, slot_name
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("silent-write", mechanism="write", when=NoError(), group="saved tensor", after="silent-write")
def data_reassigned(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first saved leaf whose ``.data`` was replaced before backward."""
    nodes = evidence.analysis.graph.nodes.values()
    leaves = {n.parameter.tensor.tensor_id for n in nodes if n.parameter is not None}
    for node in sorted(nodes, key=lambda n: n.order):
        for saved in node.saved:
            if saved.tensor.tensor_id not in leaves or saved.packed_by != "pytorch":
                continue
            found = _read(evidence, node, saved, leaves)
            if found is not None:
                yield _draft(evidence, node, saved, found)


class _Replaced(NamedTuple):
    """A saved leaf whose memory was replaced."""

    op: Op  # the op that saved it
    read: Op  # the op of the backward that read other memory
    differs: bool  # the content differs, as far as it is known


def _read(evidence: Evidence, node: Node, saved: SavedTensor, leaves: set[int]) -> _Replaced | None:
    """Return the first read of a saved leaf in memory that its op did not use."""
    op = node.op
    if op is None or saved.tensor.storage_id in storages((*op.inputs, *op.outputs)):
        return None
    # The input that was the leaf; other leaves and buffers are unchanged.
    place = next(
        (
            place
            for place, tensor in enumerate(op.inputs)
            if _same_metadata(tensor, saved.tensor)
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
                    return None if known and content == before else _Replaced(op, read, known)
    return None


def _same_metadata(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _assigned(evidence: Evidence, op: Op, read: Op, tensor_id: int) -> SourceLocation | None:
    """Return the line that assigned ``.data``, or the first that created a later value."""
    window = window_until_read(evidence, op, read.seq)
    assigned = best_line(
        (
            LineCandidate(
                filename,
                node.lineno,
                function,
                window.ran_in_window(filename, function, node.lineno),
                # A context manager's __enter__ ran before its __exit__.
                (not function.endswith("__enter__"),),
            )
            for filename in evidence.user_files
            for function, node in source.nodes(filename)
            if isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Attribute) and t.attr == "data" for t in node.targets)
        ),
        at_least=REACHABLE,
    )
    if assigned is not None:
        return assigned
    made = (
        each.location
        for each in evidence.analysis.ops
        if op.seq < each.seq < read.seq
        and each.phase == "forward"
        and any(tensor.tensor_id == tensor_id for tensor in each.outputs)
    )
    return next(made, None)


def _draft(evidence: Evidence, node: Node, saved: SavedTensor, found: _Replaced) -> Draft:
    op, read, differs = found
    named = evidence.analysis.leaf_name(saved.tensor.tensor_id)
    culprit = _assigned(evidence, op, read, saved.tensor.tensor_id)
    return Draft(
        title=f"{slot_name(saved, node.name)} was given other memory after it was saved",
        culprit=culprit,
        victim=saved.location or node.location,
        explanation=[
            f'{node.name}{in_module(node.module)} saved {named} itself as "{saved.slot}":',
            saved.location or node,
            "Before backward its .data was set to another tensor:",
            culprit,
            "The leaf keeps its version counter, so PyTorch's check passed, and backward "
            "read the new values: the gradient is not that of the computed loss."
            if differs
            else "Where the new values differ from the old ones the gradient is wrong, and "
            "nothing is raised; record(fingerprints=True) compares them.",
        ],
        fix="# set .data after backward(); or give the forward a tensor of its own:\n"
        "# torch.func.functional_call(module, {name: tensor}, inputs)",
        confidence="likely" if differs else "hint",
        evidence=(op, read, node),
    )
