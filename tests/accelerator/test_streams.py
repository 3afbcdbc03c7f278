"""Reads of values that another stream may not have written: those that the device finds itself."""

import pytest

from tests.accelerator.engines import run_program as run

__all__ = ["run"]

BEFORE = """
import autogradviz
from autogradviz.events import StreamsOrdered, StreamUsed

side, other = torch.Stream("sim"), torch.Stream("sim")
main = torch.accelerator.current_stream()
methods = dict(vars(torch.Stream)), dict(vars(torch.Event))
x = torch.ones(4, 8, device="sim")
weight = torch.ones(8, device="sim", requires_grad=True)
torch.accelerator.synchronize()
sim.clear()
with sim.detect_races(), autogradviz.record(engine=ENGINE) as trace:
"""
AFTER = """
assert methods == (dict(vars(torch.Stream)), dict(vars(torch.Event)))
found = [each for each in trace.diagnose() if each.slug == "stream-not-waited"]
def line(stack):
    return next(each.number for each in stack if each.file.endswith("program.py"))

races = [each for each in sim.races() if each.kind == "read-after-write"]
answer([
    [[each.victim.text, each.culprit.text] for each in found],
    sorted({(line(each.first), line(each.second)) for each in races}),
    [[each.victim.lineno, each.culprit.lineno] for each in found],
])
"""


def steps(run, *lines):
    return run(BEFORE + "\n".join(f"    {line}" for line in lines), AFTER)


ORDERED = {
    "wait_stream": [
        "side.wait_stream(main)",
        "with side: y = x * 2",
        "main.wait_stream(side)",
        "(y * weight).sum().backward()",
    ],
    "events": [
        "ready = main.record_event()",
        "side.wait_event(ready)",
        "with side: y = x * 2",
        "done = torch.Event('sim')",
        "done.record(side)",
        "done.wait(main)",
        "(y * weight).sum().backward()",
    ],
    "host": [
        "with side: y = x * 2",
        "side.synchronize()",
        "z = y + 1",
        "with other: a = x * 3",
        "torch.accelerator.synchronize()",
        "b = a + z",
        "with side: number = (x * 2).sum().item()",
        "(b * weight).sum().backward()",
    ],
    "a third stream": [
        "with side: y = x * 2",
        "other.wait_stream(side)",
        "with other: z = y + 1",
        "main.wait_stream(other)",
        "(z * y * weight).sum().backward()",
    ],
    "the engine": [
        "with side:",
        "    y = (x * weight).sum()",
        "main.wait_stream(side)",
        "(y * 2).backward()",
        "weight.grad.mul_(2)",
    ],
}
NOT_ORDERED = {
    "result": ["with side: y = x * 2", "loss = (y * weight).sum()"],
    "input": ["y = x * 2", "with side: z = y + 1", "main.wait_stream(side)", "a = z + 1"],
    "written again": [
        "with side: y = x * 2",
        "main.wait_stream(side)",
        "z = y + 1",
        "with side: y.add_(1)",
        "a = y + 1",
    ],
    "event before the work": [
        "ready = side.record_event()",
        "with side: y = x * 2",
        "main.wait_event(ready)",
        "z = y + 1",
    ],
}


@pytest.mark.parametrize("name", ORDERED)
def test_ordered_streams_have_no_finding(run, name):
    assert steps(run, *ORDERED[name]) == [[], [], []]


@pytest.mark.parametrize("name", NOT_ORDERED)
def test_read_without_an_order_is_found_with_both_lines_as_the_device_does(run, name):
    lines, races, numbers = steps(run, *NOT_ORDERED[name])
    assert len(lines) == 1
    assert numbers == races


def test_program_on_the_default_stream_records_nothing_of_streams(run):
    recorded = run(BEFORE + "    (x * weight).sum().backward()", """
answer([len(trace.log.of(StreamsOrdered)), len(trace.log.of(StreamUsed))])
""")  # fmt: skip
    assert recorded == [0, 0]


def test_gradient_on_another_stream_has_the_line_of_its_forward_and_of_the_first_use(run):
    found = run("import autogradviz, warnings", """
side = torch.Stream("sim")
main = torch.accelerator.current_stream()
x = torch.ones(4, 8, device="sim")

def slugs(keeps):
    net = torch.nn.Linear(8, 1).to("sim")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with autogradviz.record(net, engine=ENGINE) as trace:
            first = net(x).sum()
            if not keeps:
                del first
            side.wait_stream(main)
            with side:
                second = net(x).sum()
                second.backward()
    warned = any("AccumulateGrad node's stream" in str(each.message) for each in caught)
    texts = [
        [each.slug, each.victim.text, each.culprit.text, each.title] for each in trace.diagnose()
    ]
    return warned, texts

answer([slugs(True), slugs(False)])
""")  # fmt: skip
    (warned, [finding]), (not_warned, none) = found
    assert finding == [
        "gradient-on-other-stream", "first = net(x).sum()", "second = net(x).sum()",
        "The gradient of bias is accumulated on another stream than its forward ran on",
    ]  # fmt: skip
    assert (warned, not_warned, none) == (True, False, [])
