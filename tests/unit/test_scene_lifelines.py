"""The rows of lifelines and tables: storages, their events, and module costs."""

from __future__ import annotations

import make_log as m
import pytest

from autogradviz import events as e
from autogradviz.analysis import Analysis
from autogradviz.scene.build_scene import build_scene


def scene_of(*facts):
    return build_scene(Analysis(m.make_log(*facts)), ())


def written_between():
    """Return a step that saves, writes and unpacks one storage, and keeps another."""
    return scene_of(
        m.op("exp", (1,), nr=0, at="net.py:3"),
        m.op("exp", (2,), nr=1, at="net.py:4"),
        m.node(1, "ExpBackward0", nr=0),
        m.node(2, "ExpBackward0", nr=1, to=[1]),
        m.saved(1, 1, node=1, slot="result", nr=0),
        m.saved(2, 2, node=2, slot="result", nr=1),
        m.bumped("aten.add_.Tensor", 1, version=0, at="net.py:5"),
        m.backward(roots=(2,)),
        m.ran(2),
        m.started(1),
        m.unpacked(1, node=1, seen=1),
        m.backward_ended(failed=True),
    )


def test_storage_has_its_events_oldest_first():
    scene = written_between()
    broken = scene.storages[0]
    assert (broken.name, broken.slots) == ("exp out", ("ExpBackward0.result",))
    assert (broken.state, broken.version, broken.seen_version) == ("broken", 0, 1)
    events = [
        (each.kind, each.version, each.ok) for each in scene.storage_events if each.storage == 0
    ]
    assert events == [("saved", 0, True), ("written", 1, False), ("unpacked", 1, False)]
    written = next(each for each in scene.storage_events if each.kind == "written")
    assert (written.op, written.filename, written.lineno) == ("add_", "net.py", 5)


def test_held_storage_lists_its_keepers():
    kept = written_between().storages[1]
    assert kept.state == "held"
    assert kept.keepers == ("ExpBackward0.result · net.py:4",)
    assert kept.holds[1::2] == (-1,)


def test_released_storage_has_no_keepers():
    scene = scene_of(
        m.op("exp", (1,), nr=0),
        m.node(1, "ExpBackward0", nr=0),
        m.saved(1, 1, node=1, slot="result", nr=0),
        m.backward(roots=(1,)),
        m.ran(1),
        m.released(1),
        m.backward_ended(),
    )
    (storage,) = scene.storages
    assert (storage.state, storage.keepers) == ("released", ())
    start, end = storage.holds
    assert start < end == next(x for x in scene.storage_events if x.kind == "released").time_ns
    (badge,) = scene.saved_badges
    assert (badge.saved_ns, badge.released_ns) == (start, end)


def curve_of(scene, time_ns):
    """Return the total bytes of all storages held at a time."""
    total = 0
    for storage in scene.storages:
        for start, end in zip(storage.holds[::2], storage.holds[1::2], strict=True):
            if start <= time_ns and (end < 0 or time_ns < end):
                total += storage.nbytes
    return total


def test_storages_sum_to_the_memory_curve():
    scene = written_between()
    assert [curve_of(scene, point.time_ns) for point in scene.memory] == [
        point.nbytes for point in scene.memory
    ]


def test_nodes_have_their_creation_and_run_times():
    scene = written_between()
    failed, ran = scene.nodes
    assert failed.born_ns < ran.born_ns < ran.runs_ns[0] < ran.runs_ns[1] < failed.runs_ns[0]
    assert failed.runs_ns[1] == -1
    spans = [span for span in scene.spans if span.kind == "node"]
    assert [span.ref for span in spans] == [ran.index, failed.index]


def test_checkpoint_region_has_its_freed_bytes_and_cost():
    scene = scene_of(
        m.module(1, "", "Net"),
        m.module(2, "block", "Block"),
        m.entered_module(2, 2),
        m.entered(1, call=2, module_id=2),
        m.op("exp", (1,), inputs=(9,), nr=0, call=2, region=1),
        m.exited(1),
        m.node(1, "ExpBackward0", nr=0),
        m.saved(1, 1, node=1, slot="result", nr=0, by="checkpoint", region=1, position=0),
        m.backward(roots=(1,)),
        m.recompute(1, 1),
        m.op("exp", (2,), recompute=1, time_ns=10_000, duration_ns=2_000),
        m.recomputed(1),
        m.backward_ended(),
    )
    (region,) = scene.regions
    (span,) = [span for span in scene.spans if span.kind == "recompute"]
    assert (region.freed_nbytes, region.held_nbytes) == (32, 0)
    assert region.recompute_ns == span.end_ns - span.start_ns
    assert (span.ref, scene.nodes[0].region) == (0, 0)


@pytest.mark.parametrize("path", ["/x/torch/optim/sgd.py", "C:\\x\\torch\\nn\\utils\\clip_grad.py"])
def test_optimizer_ops_are_not_a_forward_span(path):
    scene = scene_of(
        m.op("exp", (1,), nr=0, at="net.py:3"),
        m.backward(),
        m.backward_ended(),
        m.op("add_", (1,), at=(f"{path}:7", "train.py:9")),
    )
    kinds = [span.kind for span in scene.spans if span.kind != "backward"]
    assert kinds == ["forward", "optimizer"]


def test_distributed_tensor_has_its_local_shape_and_placements():
    scene = scene_of(
        m.tensor(1, (4,), storage=1),
        m.tensor(2, (8,), storage=1),
        m.fact(
            e.DistributedTensorSeen, tensor_id=2, local_tensor_id=1, placements=("Shard(dim=0)",),
            mesh_names=("tp",), mesh_shape=(2,), mesh_coordinates=(0,),
        ),
        m.op("exp", (2,), nr=0),
        m.node(1, "ExpBackward0", nr=0),
        m.saved(1, 2, node=1, slot="result", nr=0),
    )  # fmt: skip
    text = "8, local 4, Shard(dim=0) on tp=2"
    assert [storage.shape for storage in scene.storages] == [text]
    assert [badge.shape for badge in scene.saved_badges] == [text]


def test_place_of_a_storage_is_the_one_that_is_counted():
    """A later save that is wrong does not move it, nor does the call of a compiled function."""
    saves = [("SigmoidBackward0", "net.py:3"), ("MulBackward0", "net.py:4")]
    facts = [m.op("sigmoid", (1,), nr=0, at="net.py:3"), m.op("mul", (2,), nr=1, at="net.py:4")]
    for node, (name, _) in enumerate(saves, 1):
        facts += [m.node(node, name, nr=node - 1, to=[1] if node > 1 else [])]
    facts += [m.saved(1, 1, node=1, slot="result", nr=0), m.saved(2, 1, node=2, slot="self", nr=1)]
    facts += [m.bumped("aten.add_.Tensor", 1, version=0, at="net.py:5"), m.backward(roots=(2,))]
    facts += [m.started(2), m.unpacked(2, node=2, seen=1), m.backward_ended(failed=True)]
    scene = scene_of(*facts)
    [counted] = scene.counted_storages
    [storage] = scene.storages
    assert (storage.filename, storage.lineno) == (counted.filename, counted.lineno) == ("net.py", 3)


def test_slot_node_and_place_of_a_storage_are_those_of_one_use():
    # The recorder numbers saves in another order than the ops ran in.
    scene = scene_of(
        m.op("exp", (2,), inputs=(1,), nr=0, at="net.py:3"),
        m.node(1, "ExpBackward0", nr=0),
        m.op("sin", (3,), inputs=(1,), nr=1, at="net.py:4"),
        m.node(2, "SinBackward0", nr=1, to=[1]),
        m.saved(1, 1, node=2, slot="self", nr=1),
        m.saved(2, 1, node=1, slot="self", nr=0),
    )
    [storage] = scene.storages
    assert (storage.slots[0], storage.lineno) == ("ExpBackward0.self", 3)
    assert scene.nodes[storage.node].name == "ExpBackward0"


def test_name_of_an_output_has_the_module_that_returned_it():
    scene = scene_of(
        m.module(1, "d2.c"),
        m.module(2, "d2.bn"),
        m.entered_module(1, 1),
        m.op("mm", (1,), nr=0, at="net.py:3", call=1),
        m.node(1, "MmBackward0", nr=0),
        m.entered_module(2, 2, nr=1),
        m.op("exp", (2,), inputs=(1,), nr=1, at="net.py:3", call=2),
        m.node(2, "ExpBackward0", nr=1, to=[1]),
        m.saved(1, 1, node=2, slot="self", nr=1),
        m.saved(2, 2, node=2, slot="result", nr=1),
    )
    output, other = scene.storages
    assert (output.name, output.module, output.output_of) == ("c out", "d2.bn", "d2.c")
    assert (other.name, other.output_of) == ("exp out", "")
