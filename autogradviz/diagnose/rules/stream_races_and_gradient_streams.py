"""Rules: values that a stream reads without waiting, and gradients added on another stream."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.stream_races import find_races
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import NodeStarted, StreamUsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op
    from autogradviz.analysis.stream_races import Lane
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- values that one stream of an accelerator writes and another one reads without an order -------


_MOST_RACES: Final = 5


@rule(
    "stream-not-waited", mechanism="order", when=NoError(), group="saved tensor", needs={"ops"},
    only_new_lines=True, at_most=_MOST_RACES,
)  # fmt: skip
def stream_not_waited(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each line that reads what another stream may not have written yet."""
    analysis = evidence.analysis
    waiting = frozenset(wait.seq for wait in analysis.device_waits)
    for race in find_races(analysis.log, analysis.ops, waiting):
        shape = f"{race.tensor.dtype} {'×'.join(map(str, race.tensor.shape))}".strip()
        yield Draft(
            title=f"{race.read_by.name} reads a tensor that another stream may not have written",
            culprit=race.read_by,
            victim=race.written_by,
            explanation=[
                f"{race.written_by.name} wrote a tensor ({shape}) on {_name(race.written_on)}:",
                race.written_by,
                f"{race.read_by.name} read it on {_name(race.read_on)}:",
                race.read_by,
                "No event and no wait of the program orders the two, so the second may "
                "run first and read old memory. Waits inside of C++ extensions are not recorded.",
            ],
            fix=_fix_of_stream(race.written_on),
            evidence=[race.written_by, race.read_by],
            confidence="likely",
        )


def _name(lane: Lane) -> str:
    device, stream = lane
    return f"stream {stream} of {device}" if stream else f"the default stream of {device}"


def _fix_of_stream(lane: Lane) -> str:
    return f"# before the read: torch.accelerator.current_stream().wait_stream(stream_{lane[1]})"


# --- gradients that are accumulated on another stream than the one that computed them -------------


@rule("gradient-on-other-stream", mechanism="cost", when=NoError(), group="waste", needs={"ops"})
def gradient_on_other_stream(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first leaf whose node for accumulation has another stream."""
    analysis = evidence.analysis
    used = {
        (event.backward_id, event.node_id): event.stream
        for event in analysis.log.of(StreamUsed)
        if event.node_id is not None
    }
    if not used:
        return
    nodes = analysis.graph.nodes
    below = defaultdict(list)
    for edge in analysis.graph.edges:
        below[edge.target].append(edge.source)
    ran: dict[int, list[int]] = defaultdict(list)
    for backward_id, node_id in analysis.log.fields(NodeStarted, "backward_id", "node_id"):
        ran[node_id].append(backward_id)
    for node_id, node in nodes.items():
        if node.parameter is None or node.parameter.tensor.device.split(":")[0] in {"cpu", "meta"}:
            continue
        for backward_id in ran[node_id]:
            own = used.get((backward_id, node_id), 0)
            for source in below[node_id]:
                stream = used.get((backward_id, source), 0)
                if backward_id in ran[source] and stream != own:
                    yield _other_stream(evidence, node, nodes[source], stream, own)
                    return


def _other_stream(evidence: Evidence, leaf: Node, source: Node, stream: int, own: int) -> Draft:
    assert leaf.parameter is not None
    name = leaf.parameter.name or "a leaf"
    first = _first_use(evidence, leaf, source.op)
    return Draft(
        title=f"The gradient of {name} is accumulated on another stream than its forward ran on",
        culprit=source.op,
        victim=first,
        explanation=[
            f"{source.name} computes the gradient on stream {stream}, that of its forward:",
            source.op,
            f"The node that accumulates it runs on stream {own}, which was current when the leaf "
            "was first used in a graph that is still alive:" if first else
            f"The node that accumulates it runs on stream {own}, which was current when a graph "
            "first used the leaf, before the recording.",
            first,
            "The engine makes one stream wait for the other in each step. In a CUDA graph that "
            "fails. DistributedDataParallel keeps such nodes, and so does a loss that is kept.",
        ],
        fix="# use the parameters on one stream from the first forward on, or drop the old graph",
        evidence=[source.op, first],
        confidence="hint",
    )  # fmt: skip


def _first_use(evidence: Evidence, leaf: Node, op: Op | None) -> Op | None:
    """Return the first op that took a leaf and made a node, None if it is that of the node."""
    assert leaf.parameter is not None
    tensor_id = leaf.parameter.tensor.tensor_id
    for each in evidence.analysis.ops:
        takes = any(tensor.tensor_id == tensor_id for tensor in each.inputs)
        if takes and each.node_id is not None:
            return None if op is not None and each.seq == op.seq else each
    return None
