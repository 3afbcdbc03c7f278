"""``record(device_time=True)``: the times are those of the device's clock, and nothing waits."""

import autogradviz
from tests.accelerator.engines import run_program as run

__all__ = ["run"]

MODEL = """
import autogradviz

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
).to("sim")
x = torch.randn(16, 64, device="sim")
"""
TIMED = """
clocks = []

def now():
    return max(sim.stream_clock(), sim.host_clock())

for name, module in model.named_modules():
    module.register_forward_pre_hook(lambda *_, name=name: clocks.append([name, now()]))
    module.register_forward_hook(lambda *_, name=name: clocks.append([name, now()]))
with autogradviz.record(model, device_time=True, engine=ENGINE) as trace:
    with sim.sync_debug_mode("error"), sim.log_kernels():
        loss = model(x).sum()
        sim.host_work(5000)
        loss.backward()
"""


def test_times_of_modules_are_those_of_the_clock_of_the_device(run):
    clocks, times, notices = run(MODEL, TIMED, """
times = [[t.module, t.start_ns, t.end_ns] for t in trace.device_times() if t.call_id is not None]
answer([clocks, times, [notice.message for notice in trace.analysis.notices]])
""")  # fmt: skip
    assert notices == []
    first = clocks[0][1]
    expected = {
        name: [clock - first for each, clock in clocks if each == name] for name, _ in clocks
    }
    assert {name: [start, end] for name, start, end in times} == expected
    assert len(times) == 4


def test_times_of_nodes_are_those_of_their_kernels(run):
    first, nodes, kernels = run(MODEL, TIMED, """
times = [[t.name, t.start_ns, t.end_ns] for t in trace.device_times() if t.node_id is not None]
answer([clocks[0][1], times, sim.kernels()])
""")  # fmt: skip
    names = [kernel[0].removeprefix("aten::") for kernel in kernels]
    starts = [kernel[3] - first for kernel in kernels]
    ends = [kernel[4] - first for kernel in kernels]
    threshold, last_mm = names.index("threshold_backward"), len(names) - names[::-1].index("mm") - 1
    mm = names.index("mm")
    # The engine sums the gradients of biases itself, between nodes. The Python engine knows the end
    # of a node only when the next one starts.
    took = {(name, start, end) for name, start, end in nodes if end > start}
    relu = ("ReluBackward0", starts[threshold], ends[threshold])
    if run.engine == "native":
        upper = ("AddmmBackward0", starts[mm], ends[mm + 1])
        assert took == {upper, relu, ("AddmmBackward0", starts[last_mm], ends[last_mm])}
    else:
        upper = ("AddmmBackward0", starts[mm], ends[names.index("sum", mm)])
        assert {upper, relu} < took
    assert min(end - start for _, start, end in nodes) >= 0


def test_results_and_waits_of_steps_are_those_of_the_plain_program(run):
    plain, recorded = run(MODEL, """
import contextlib, copy

def steps(recording):
    sim.clear()
    own = copy.deepcopy(model)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    losses = []
    with recording:
        for _ in range(2):
            optimizer.zero_grad()
            loss = own(x).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        waits = [
            [wait.kind, next(l.number for l in wait.stack if l.file.endswith("program.py"))]
            for wait in sim.waits()
        ]
    return losses, [p.grad.tolist() for p in own.parameters()], waits

recording = autogradviz.record(device_time=True, engine=ENGINE)
answer([steps(contextlib.nullcontext()), steps(recording)])
""")  # fmt: skip
    assert recorded == plain
    assert len(plain[2]) == 2


def test_each_stream_has_a_lane_which_a_file_keeps(run, tmp_path):
    run("import autogradviz", """
model = torch.nn.ModuleList([torch.nn.Linear(8, 8).to(f"sim:{i}") for i in (0, 0, 1)])
x = torch.randn(4, 8, device="sim")
side = torch.Stream("sim:0")
with autogradviz.record(model, device_time=True, engine=ENGINE) as trace:
    y = model[0](x)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        z = model[1](y)
    torch.accelerator.current_stream().wait_stream(side)
    model[2](z.to("sim:1")).sum().backward()
""", f"trace.save({str(tmp_path / 'lanes.agv')!r})")  # fmt: skip
    trace = autogradviz.load(tmp_path / "lanes.agv")
    times = trace.device_times()
    assert [(time.lane, time.name) for time in times if time.module is not None] == [
        ("sim:0", "0"), ("sim:0 stream 1", "1"), ("sim:1", "2"),
    ]  # fmt: skip
    lanes = {"sim:0", "sim:0 stream 1", "sim:1"}
    assert {time.lane for time in times if time.name == "AddmmBackward0"} == lanes
    spans = [span for span in trace.analysis.timeline.spans if span.kind == "device"]
    assert {span.lane for span in spans} == lanes
    assert len(spans) == len(times)
    assert all(time.placed_start_ns <= time.placed_end_ns for time in times)


def test_times_of_a_long_recording_are_read_while_it_runs(run):
    waiting, durations = run(MODEL, """
from autogradviz.recorder import device_times, recorder

device_times.MOST_WAITING = 8
waiting = []
with sim.sync_debug_mode("error"):
    with autogradviz.record(model, device_time=True, engine=ENGINE) as trace:
        for _ in range(40):
            model(x)
            sim.host_work(10**6)
            waiting.append(recorder._active.session.device_spans.waiting())
answer([waiting, [t.duration_ns for t in trace.device_times()]])
""")  # fmt: skip
    assert len(durations) == 160
    assert min(durations) > 0
    assert max(waiting) < 40


def test_an_option_without_an_accelerator_records_nothing_and_says_so():
    import torch

    model = torch.nn.Linear(2, 1)
    with autogradviz.record(model, device_time=True) as trace:
        model(torch.ones(1, 2)).sum().backward()
    assert trace.device_times() == []
    assert [(each.hook_point, each.message) for each in trace.analysis.notices] == [(
        "device_time",
        "device_time=True recorded nothing: no module and no node ran on an accelerator",
    )]  # fmt: skip
