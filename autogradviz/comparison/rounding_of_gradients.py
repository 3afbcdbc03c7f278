"""The rounding that the norms of gradients of two recordings may differ by."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Final

from autogradviz.support.dtype_precision import UNIT_ROUNDOFF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis


# Two programs that compute the same gradients in another order, or keep other intermediate results,
# get different bits. Rounding errors behave like a random walk (Higham and Mary, "A new approach to
# probabilistic rounding error analysis", 2019): a sum of ``n`` terms has a relative error of a few
# ``u * sqrt(n)``, where ``u`` is the unit roundoff. Here
#
# * a chain of ``depth`` ops rounds its results to the coarsest dtype that the program computes in;
# * sums of at most ``terms`` elements are accumulated in float32, or in float64 if all is float64;
# * terms may cancel. A gradient that is zero in exact arithmetic, as that of a bias before a batch
#   norm, consists of rounding errors alone. Their size is that of other gradients, not its own.


CHAIN: Final = 4.0  # standard deviations of the error of a chain of ops
SUM: Final = 16.0  # the same of a sum, whose terms are not independent
CANCELLED: Final = 0.25  # of the roundoff of a term, on average over the terms that cancel


@dataclass(frozen=True, slots=True)
class Rounding:
    """The sizes that determine how far rounding may move the gradients of two programs."""

    roundoff: float  # of the coarsest dtype
    summed: float  # of the dtype in which sums are accumulated
    depth: int  # ops in the longest chain
    terms: int  # elements of the largest tensor
    largest: float  # norm of the largest gradient

    def bound(self, norm: float) -> float:
        """Return the largest difference that rounding explains.

        Args:
            norm: of a gradient, the larger of the two.
        """
        sums = SUM * self.summed * sqrt(self.terms)
        relative = CHAIN * self.roundoff * sqrt(self.depth) + sums
        return relative * norm + (CANCELLED * self.roundoff + sums) * self.largest


def rounding_between(*recordings: Analysis) -> Rounding:
    """Return the sizes of programs that should compute the same gradients."""
    roundoffs, depth, terms, largest = {UNIT_ROUNDOFF["float64"]}, 1, 1, 0.0
    for analysis in recordings:
        depth = max(depth, _depth(analysis))
        for dtype, shape in _tensors(analysis):
            roundoff = UNIT_ROUNDOFF.get(dtype)
            if roundoff is not None:
                roundoffs.add(roundoff)
                terms = max(terms, prod(shape))
        leaves = [node.parameter for node in analysis.graph.nodes.values()]
        norms = [leaf.norm for leaf in leaves if leaf is not None and leaf.norm is not None]
        largest = max([largest, *norms])
    coarsest = max(roundoffs)
    summed = min(coarsest, UNIT_ROUNDOFF["float32"])
    return Rounding(roundoff=coarsest, summed=summed, depth=depth, terms=terms, largest=largest)


def _tensors(analysis: Analysis) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield dtype and shape of the tensors that a program computed, saved and has as leaves."""
    for op in analysis.ops:
        for output in op.outputs:
            yield output.dtype, output.shape
    for node in analysis.graph.nodes.values():
        if node.parameter is not None:
            yield node.parameter.tensor.dtype, node.parameter.tensor.shape
        for saved in node.saved:
            yield saved.tensor.dtype, saved.tensor.shape
    for region in analysis.compiled_regions:
        for compiled in (*region.forward_ops, *region.backward_ops):
            yield compiled.dtype, tuple(max(size, 1) for size in compiled.shape)  # -1: unknown


def _depth(analysis: Analysis) -> int:
    """Return the number of forward ops in the longest chain of the graph."""
    weights = {
        run.node_id: len(region.forward_ops)
        for region in analysis.compiled_regions
        for run in region.runs
    }
    nodes = sorted(analysis.graph.nodes.values(), key=lambda node: node.order)
    below: dict[int, int] = {}
    targets: dict[int, list[int]] = {}
    for edge in analysis.graph.edges:
        targets.setdefault(edge.source, []).append(edge.target)
    for node in nodes:
        longest = max((below.get(each, 0) for each in targets.get(node.node_id, ())), default=0)
        below[node.node_id] = longest + weights.get(node.node_id, 1)
    return max(below.values(), default=0)
