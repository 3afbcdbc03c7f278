"""Rules: streams, waits and values that are partial on a rank."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape
from autogradviz.analysis.stream_races import find_races
from autogradviz.diagnose.evidence.tensor_values import first_nonlinear_use, partial_parts
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import NodeStarted, PlacementsChanged, StreamUsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import DeviceWait, Node, Op, SourceLocation
    from autogradviz.analysis.stream_races import Lane
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import DistributedTensorSeen


# --- lines at which the host waits for an accelerator in the middle of a step ---------------------


_FEW: Final = 2
"""Values outside of modules and backward that a line may read in a step: a loss, and a norm."""

_MOST_LINES: Final = 3
"""Findings of this kind."""


@rule(
    "device-waited",
    mechanism="cost",
    when=NoError(),
    group="waste",
    needs={"ops"},
    at_most=_MOST_LINES,
)
def device_waited(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each line that makes the host wait inside modules, or many times a step."""
    steps = max(1, len(evidence.analysis.steps.ended))
    by_line: dict[SourceLocation, list[DeviceWait]] = defaultdict(list)
    for wait in evidence.analysis.device_waits:
        if wait.location is not None:
            by_line[wait.location].append(wait)
    found = [waits for waits in by_line.values() if _is_reported(waits, steps)]
    for waits in sorted(found, key=len, reverse=True):
        yield _device_wait(waits, steps)


def _is_reported(waits: Sequence[DeviceWait], steps: int) -> bool:
    """Return whether a line waits where the device has work to come.

    Copies outside of modules load data or write checkpoints.
    """
    inside = any(wait.in_call for wait in waits)
    reads = sum(not wait.reason.startswith("copies") for wait in waits)
    return inside or reads > _FEW * steps


def _device_wait(waits: Sequence[DeviceWait], steps: int) -> Draft:
    first = waits[0]
    often = "once" if len(waits) == 1 else f"{len(waits)} times"
    within = f" in {steps} steps" if steps > 1 else ""
    spent = f"{sum(wait.duration_ns for wait in waits) / 1e6:.1f} ms"
    kinds = sorted({f"{wait.name} {wait.reason}" for wait in waits})
    return Draft(
        title=f"The host waits for {first.device} at this line, {often}{within}",
        culprit=first.location,
        victim=None,
        explanation=[
            f"{'; '.join(kinds)}. The host waits until {first.device} has done all work that was "
            "submitted before:",
            first.location,
            "Meanwhile it submits nothing, so that the device then has nothing to do until the "
            f"host has caught up. These calls took {spent} on the host.",
        ],
        fix=_fix_of_wait(first),
        evidence=[wait.seq for wait in waits[:20]],
        confidence="hint",
    )


def _fix_of_wait(wait: DeviceWait) -> str:
    if wait.reason.startswith("copies to the device"):
        return "# copy from pinned memory with non_blocking=True, before the model runs"
    if wait.reason.startswith("copies"):
        return "# keep the tensor on its device, or copy it once at the end of the step"
    if wait.reason == "reads a number":
        return "# keep the value in a tensor: torch.where(condition, a, b) instead of if"
    return "# keep the size: torch.where(mask, x, 0) instead of x[mask]"


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


# --- the local part of a ``Partial`` ``DTensor`` is used as if it were the whole value ------------


@rule(
    "partial-value-used",
    mechanism="change",
    when=NoError(),
    group="gradient",
    at_most=3,
    needs={"ops"},
)
def partial_value_used(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each line that takes a term of a sum over ranks for the sum."""
    named: set[SourceLocation | None] = set()
    read = {e.result_tensor_id: e for e in reversed(evidence.analysis.log.of(PlacementsChanged))
            if e.conversion == "to_local"}  # fmt: skip
    for local_id, seen in partial_parts(evidence).items():
        op = first_nonlinear_use(evidence, local_id, seen.seq)
        if op is None:
            continue
        call = read.get(local_id)
        line = op.location if call is None else evidence.analysis.location(call.stack_id)
        if line not in named:
            named.add(line)
            yield _partial_value(evidence, seen, op, line)


def _partial_value(
    evidence: Evidence, seen: DistributedTensorSeen, op: Op, line: SourceLocation | None
) -> Draft:
    analysis = evidence.analysis
    gradient = _parameter_of(evidence, seen.tensor_id)
    of = f"the gradient of {gradient}" if gradient else "a DTensor"
    shape = format_shape(analysis.tensors[seen.tensor_id].shape)
    size = next(s for p, s in zip(seen.placements, seen.mesh_shape, strict=True) if "Partial" in p)
    return Draft(
        title=f"The local part of {of} is used before the ranks are added",
        culprit=line,
        victim=op if op.location != line else None,
        explanation=[
            f"The placements of this tensor, {shape}, are ({', '.join(seen.placements)}): its "
            f"value is the sum over {size} ranks, and to_local() returns this rank's term.",
            line,
            f"{op.name} then takes it for the whole value; no collective took it before:",
            op,
        ],
        fix="tensor.full_tensor()  # or: tensor.redistribute(placements=[Replicate()]).to_local()",
        confidence="likely",
        evidence=(seen, op),
    )


def _parameter_of(evidence: Evidence, tensor_id: int) -> str:
    """Return the name of the parameter whose gradient a tensor is, "" if it is none."""
    nodes = evidence.analysis.graph.nodes
    for node_id, inputs in evidence.analysis.log.fields(NodeStarted, "node_id", "inputs"):
        node = nodes.get(node_id)
        if tensor_id in inputs and node is not None and node.parameter is not None:
            return node.parameter.name or "a leaf"
    return ""
