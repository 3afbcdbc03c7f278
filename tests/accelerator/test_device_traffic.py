"""Copies between the host and the device, what waits for it, and bytes on each device."""

import pytest

import autogradviz
from autogradviz.analysis.device_copies_and_waits import WAITING_OPS
from tests.accelerator.engines import run_program as run

__all__ = ["run"]

STEP = """
model = torch.nn.Linear(8, 8).to("sim")
pinned = torch.ones(4, 8).pin_memory()
sim.clear()
with autogradviz.record(model, engine=ENGINE) as trace:
    x = torch.ones(4, 8).to("sim")  # loaded
    y = pinned.to("sim", non_blocking=True)  # pinned
    kept = torch.empty(4, 8, pin_memory=True)
    out = model(x) + model(y)
    kept.copy_(out.detach(), non_blocking=True)  # kept
    number = out.sum().item()  # number
    positive = out[out > 0]  # masked
    out[out > 0] = 1.0
    places = (out > 0).nonzero()  # places
    equal = torch.equal(x, y)  # equal
    other = x.to("sim:1")  # other
    other.mul(torch.ones(8, device="sim:1", requires_grad=True)).square().sum().backward()
    host = out.detach().cpu()  # host
    waits = [
        next(line.number for line in wait.stack if line.file.endswith("program.py"))
        for wait in sim.waits()
    ]
"""


@pytest.fixture
def step(run, tmp_path):
    """Return the trace of a step from its file, the lines of its waits, and its lines by name."""
    path = tmp_path / "traffic.agv"
    waits = run("import autogradviz", STEP, f"trace.save({str(path)!r})", "answer(waits)")
    program = (tmp_path / "program.py").read_text(encoding="utf-8").splitlines()
    named = {number: line.split("  # ")[-1] for number, line in enumerate(program, 1)}
    return autogradviz.load(path), [named[number] for number in waits], named


def test_copies_are_known_by_line_with_their_direction_and_memory(step):
    trace, _, named = step
    found = {
        named[each.location.lineno]: (
            each.direction, each.target, each.nbytes, each.count, each.is_pinned, each.is_blocking,
        )
        for each in trace.transfers()
    }  # fmt: skip
    assert found == {
        "loaded": ("to the device", "sim:0", 128, 1, False, True),
        "pinned": ("to the device", "sim:0", 128, 1, True, False),
        "kept": ("to the host", "cpu", 128, 1, True, False),
        "number": ("to the host", "cpu", 4, 1, None, True),
        "other": ("between devices", "sim:1", 128, 1, None, False),
        "host": ("to the host", "cpu", 128, 1, False, True),
    }
    assert "128 B between devices in 1; 256 B to the device in 2; 260 B to the host in 3" in (
        " ".join(repr(trace).split())
    )


def test_waits_are_those_of_the_device(step):
    trace, waits, named = step
    assert [named[wait.location.lineno] for wait in trace.analysis.device_waits] == [
        *dict.fromkeys(waits)  # indexing waits twice
    ]
    assert [*dict.fromkeys(waits)] == ["loaded", "number", "masked", "places", "equal", "host"]


def test_saved_bytes_are_known_for_each_device(step):
    trace, _, _ = step
    sizes = trace.device_bytes()
    assert set(sizes) == {"sim:0", "sim:1"}
    assert sum(each.saved for each in sizes.values()) == trace.saved_bytes().saved
    assert sizes["sim:1"].saved == sizes["sim:1"].released == 256


def test_all_operators_that_pytorch_tags_are_known_to_wait():
    import torch

    composite = "CompositeImplicitAutograd"
    tagged = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        op = getattr(getattr(getattr(torch.ops, space), packet, None), overload or "default", None)
        if space != "aten" or op is None or overload.endswith("out"):
            continue
        reads = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags)
        if reads and not torch._C._dispatch_has_kernel_for_dispatch_key(name, composite):
            tagged.add(str(op))
    assert tagged - set(WAITING_OPS) == set()
