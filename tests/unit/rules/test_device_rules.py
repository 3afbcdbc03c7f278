"""Findings of accelerators: lines that make the host wait, and streams without an order."""

from __future__ import annotations

import pytest
from make_log import backward, fact, leaf, node, op, parameter, ran
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.host_waits_for_device import device_waited
from autogradviz.diagnose.rules.stream_races_and_gradient_streams import (
    gradient_on_other_stream,
    stream_not_waited,
)


def on(tensor_id, device="cuda:0", dtype="float32"):
    return fact(
        e.TensorSeen, tensor_id=tensor_id, storage_id=tensor_id, shape=(8,), dtype=dtype,
        device=device, nbytes=32, storage_nbytes=32,
    )  # fmt: skip


def copied(seq, *, blocking=True, target="cpu", source="cuda:0"):
    return fact(
        e.DeviceCopied, op_seq=seq, source_device=source, target_device=target, nbytes=32,
        is_pinned=False, is_blocking=blocking, at="t.py:3",
    )  # fmt: skip


def test_number_that_is_read_inside_a_module_is_reported():
    (finding,) = run_rule(
        device_waited, on(1), op("_local_scalar_dense", inputs=(1,), call=4, at="t.py:3")
    )
    assert finding.slug == "device-waited"
    assert lines(finding) == ("t.py:3", "None")
    assert finding.title == "The host waits for cuda:0 at this line, once"
    assert finding.confidence == "hint"


@pytest.mark.parametrize(("count", "reported"), [(2, False), (3, True)])
def test_numbers_outside_of_modules_are_reported_from_the_third_on_in_a_step(count, reported):
    reads = [op("_local_scalar_dense", inputs=(1,), at="t.py:3") for _ in range(count)]
    assert bool(run_rule(device_waited, on(1), *reads)) == reported


def test_number_on_the_host_is_not_reported():
    reads = [op("_local_scalar_dense", inputs=(1,), call=4, at="t.py:3")] * 5
    assert run_rule(device_waited, on(1, "cpu"), *reads) == []


def test_masks_wait_and_other_indices_do_not():
    def index(dtype):
        call = op("aten.index.Tensor", (3,), inputs=(1, 2), call=4, at="t.py:3")
        return run_rule(device_waited, on(1), on(2, dtype=dtype), on(3), call)

    assert len(index("bool")) == 1
    assert index("int64") == []


def test_copies_are_reported_only_inside_of_modules_and_if_they_block():
    def copy(call, *, blocking=True):
        run = op("_to_copy", (2,), inputs=(1,), call=call, at="t.py:3")
        events = [on(1), on(2, "cpu"), run, copied(3, blocking=blocking)]
        return run_rule(device_waited, *events)

    assert len(copy(4)) == 1
    assert copy(None) == []
    assert copy(4, blocking=False) == []


def used(seq, stream=3):
    return fact(
        e.StreamUsed, device="cuda:0", stream=stream, op_seq=seq, backward_id=None, node_id=None
    )


def ordered(action, stream=None, *, other=None, seq=None, device="cuda:0"):
    return fact(
        e.StreamsOrdered, action=action, device=device, stream=stream, other_stream=other,
        recorded_seq=seq,
    )  # fmt: skip


def read_after(*between):
    """Write tensor 2 on stream 3, and read it on the default stream."""
    return run_rule(
        stream_not_waited, on(1), on(2), on(4),
        op("mul", (2,), inputs=(1,), at="t.py:3"), used(4), *between,
        op("add", (4,), inputs=(2,), at="t.py:5"),
    )  # fmt: skip


def test_read_on_another_stream_is_likely_at_fault():
    (finding,) = read_after()
    assert finding.slug == "stream-not-waited"
    assert lines(finding) == ("t.py:5", "t.py:3")
    assert finding.confidence == "likely"
    assert finding.title == "add reads a tensor that another stream may not have written"


@pytest.mark.parametrize(
    "order",
    [
        [ordered("wait_stream", 0, other=3)],
        [ordered("record", 3), ordered("wait", 0, seq=6)],
        [ordered("record", 3), ordered("synchronize", seq=6, device="")],
        [ordered("synchronize", 3)],
        [ordered("synchronize", device="")],
        [ordered("wait", 0)],  # for an event that was recorded earlier
    ],
)
def test_read_after_an_order_is_right(order):
    assert read_after(*order) == []


def test_order_of_other_streams_or_before_the_write_does_not_count():
    assert len(read_after(ordered("wait_stream", 0, other=5))) == 1
    assert len(read_after(ordered("wait_stream", 3, other=0))) == 1


def accumulated_on(*streams):
    """Compute a gradient on the first stream, and accumulate it on the second one."""
    runs = [
        fact(e.StreamUsed, device="cuda:0", stream=stream, op_seq=None, backward_id=1, node_id=each)
        for each, stream in zip((5, 6), streams, strict=True)
        if stream
    ]
    return run_rule(
        gradient_on_other_stream, on(1), on(2), on(3), parameter(1, "weight"),
        op("exp", (2,), inputs=(1,), nr=1, at="t.py:2"), node(4, "ExpBackward0", nr=1, to=(6,)),
        op("exp", (3,), inputs=(1,), nr=2, at="t.py:4"), node(5, "ExpBackward0", nr=2, to=(6,)),
        leaf(6, 1), backward(roots=(5,)), ran(5), ran(6), runs,
    )  # fmt: skip


def test_gradient_that_is_accumulated_on_another_stream_has_both_lines():
    (finding,) = accumulated_on(3, 0)
    assert finding.slug == "gradient-on-other-stream"
    assert lines(finding) == ("t.py:4", "t.py:2")
    assert finding.confidence == "hint"


def test_gradient_that_is_accumulated_on_its_own_stream_is_right():
    assert accumulated_on(3, 3) == []
    assert accumulated_on(0, 0) == []
