"""Recordings of backwards whose nodes run on a thread of a device, without a frame below."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.accelerator.run_on_device import run_on_device

RECORDINGS = {
    "native": "engine='native'",
    "python": "engine='python'",
    "fingerprints": "fingerprints=True",
    "verify": "verify=True",
}
BEFORE = """
import threading, weakref
import torch._dynamo
from torch.utils.checkpoint import checkpoint
import autogradviz
from autogradviz.events import BackwardStarted, NodeFinished, NodeStarted, RecorderFailed
OPTIONS = dict({options})
def line(location):
    return location and location.text
"""


@pytest.fixture(params=RECORDINGS)
def recorded(request, tmp_path):
    """Run a program on the device with each kind of recording; return its answer."""
    if request.param == "native":
        request.getfixturevalue("built")
    before = BEFORE.format(options=RECORDINGS[request.param])

    def run(program):
        return run_on_device(before + dedent(program), tmp_path, native=True)

    return run


def test_in_place_error_has_both_lines_on_every_device(recorded):
    found = recorded("""
        found = {}
        for device in ("cpu", "sim"):
            x = torch.ones(3, device=device, requires_grad=True)
            message = None
            try:
                with autogradviz.record(**OPTIONS) as trace:
                    gate = x.softmax(-1)
                    gate.mul_(0.5)
                    gate.sum().backward()
            except RuntimeError as error:
                message = str(error)[:60]
            found[device] = [message, *([f.slug, f.confidence, line(f.culprit), line(f.victim)]
                                        for f in trace.diagnose())]
        answer(found)
    """)
    assert found["sim"] == found["cpu"]
    assert found["sim"][1] == [
        "saved-tensor-mutated", "certain", "gate.mul_(0.5)", "gate = x.softmax(-1)",
    ]  # fmt: skip


def test_operators_have_the_lines_that_they_have_on_the_cpu(recorded):
    found = recorded("""
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2
        def hook(gradient):
            return gradient + 0
        def block(x):
            return x.sin().cos()
        def train(x):
            y = checkpoint(block, Double.apply(x), use_reentrant=False)
            y.register_hook(hook)
            (y.exp() + y).sum().backward()
        found = {}
        for device in ("cpu", "sim"):
            x = torch.ones(3, device=device, requires_grad=True)
            with autogradviz.record(**OPTIONS) as trace:
                train(x)
            analysis = trace.analysis
            found[device] = [
                [op.name, op.phase, [place.text for place in analysis.user_stack(op.stack_id)]]
                for op in analysis.ops if op.phase != "forward"
            ]
            assert not trace.log.of(RecorderFailed)
        answer(found)
    """)
    assert found["sim"] == found["cpu"]
    lines = {name: texts for name, phase, texts in found["sim"] if phase == "backward"}
    assert lines["cos"][-2:] == ["(y.exp() + y).sum().backward()", "train(x)"]
    recomputed = [texts for name, phase, texts in found["sim"] if phase == "recompute"]
    assert all(texts[0] == "return x.sin().cos()" for texts in recomputed)
    assert all(texts[-1] == "train(x)" for texts in recomputed)


def test_step_ends_as_without_a_recording_and_does_not_wait(recorded):
    """Importing Dynamo, as the first optimizer does, adds handlers that look at frames."""
    assert recorded("""
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).to("sim")
        x = torch.randn(3, 4, device="sim")
        def step():
            y = model(x) + x
            y = y + checkpoint(model, y, use_reentrant=False)
            y = y + checkpoint(model, y, use_reentrant=True)
            gradients = torch.autograd.grad(y.square().sum(), model.parameters(), create_graph=True)
            loss = sum(each.square().sum() for each in gradients)
            loss.backward()
            found = [each.grad.clone() for each in model.parameters()]
            model.zero_grad()
            return found
        try:
            plain = step()
        except RuntimeError as error:
            plain = str(error)
        threads = threading.enumerate()
        waits = 0
        sim.clear()
        reads = "fingerprints" in OPTIONS or "verify" in OPTIONS
        with autogradviz.record(**OPTIONS) as trace:
            if reads:
                seen = step_result = None
            try:
                with sim.sync_debug_mode("default" if reads else "error"):
                    seen = step()
            except RuntimeError as error:
                seen = str(error)
            waits = len(sim.waits())
        with sim.ignore_waits():
            same = seen == plain if isinstance(plain, str) else all(map(torch.equal, plain, seen))
        answer([
            same, threading.enumerate() == threads, reads or waits == 0,
            reads or len(sim.waits()) <= 1, [str(e) for e in trace.log.of(RecorderFailed)],
        ])
    """) == [True, True, True, True, []]


def test_nodes_that_run_have_finished_also_with_nested_backwards(recorded):
    assert recorded("""
        w = torch.ones(3, device="sim", requires_grad=True)
        def block(x):
            return x.sin() * w
        with autogradviz.record(**OPTIONS) as trace:
            y = checkpoint(lambda x: checkpoint(block, x, use_reentrant=True).cos(),
                           w * 2, use_reentrant=True)
            (y + w).sum().backward()
        started = [(e.backward_id, e.node_id) for e in trace.log.of(NodeStarted)]
        finished = [(e.backward_id, e.node_id) for e in trace.log.of(NodeFinished)]
        backwards = [(e.backward_id, e.parent_backward_id) for e in trace.log.of(BackwardStarted)]
        answer([sorted(started) == sorted(finished), len(set(started)) == len(started), backwards])
    """) == [True, True, [[0, None], [1, 0], [2, 1]]]


@pytest.mark.one_in(8, reason="waits for a device that works", in_ci=2)
def test_failing_node_is_known_while_another_device_works(recorded):
    found = recorded("""
        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, gradient):
                started.wait(10)
                raise ValueError("refused")
        class Waits(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, gradient):
                started.set()
                failed.wait(0.2)
                return gradient
        started, failed = threading.Event(), threading.Event()
        a = torch.ones(3, device="sim:0", requires_grad=True)
        b = torch.ones(3, device="sim:1", requires_grad=True)
        try:
            with autogradviz.record(**OPTIONS) as trace:
                loss = Waits.apply(a * 2).sum().to("sim:1") + Fails.apply(b * 2).sum()
                loss.backward()
        except ValueError:
            pass
        error = trace.analysis.error
        answer([trace.analysis.graph.nodes[error.node_id].name, error.backward_id])
    """)
    assert found == ["FailsBackward", 0]


def test_each_of_two_threads_that_call_backward_has_its_own_nodes(recorded):
    assert recorded("""
        leaves = [torch.ones(3, device="sim", requires_grad=True) for _ in range(2)]
        losses = [leaves[0].exp().sum(), leaves[1].sin().cos().sum()]
        with autogradviz.record(**OPTIONS) as trace:
            for _ in range(20):
                losses = [leaves[0].exp().sum(), leaves[1].sin().cos().sum()]
                threads = [threading.Thread(target=loss.backward) for loss in losses]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        nodes = trace.analysis.graph.nodes
        roots = {e.backward_id: e.root_ids for e in trace.log.of(BackwardStarted)}
        names = {}
        for e in trace.log.of(NodeStarted):
            names.setdefault(e.backward_id, []).append(nodes[e.node_id].name)
        kinds = {tuple(sorted(found)) for found in names.values()}
        answer([len(roots), sorted(kinds), not trace.log.of(RecorderFailed)])
    """) == [
        40,
        [
            ["AccumulateGrad", "CosBackward0", "SinBackward0", "SumBackward0"],
            ["AccumulateGrad", "ExpBackward0", "SumBackward0"],
        ],
        True,
    ]  # fmt: skip


def test_sums_of_the_engine_are_not_writes_of_a_hook(recorded):
    found = recorded("""
        def findings(hook):
            w = torch.ones(3, device="sim", requires_grad=True)
            with autogradviz.record(**OPTIONS) as trace:
                for _ in range(2):
                    other = w.exp()
                    y = w * 2
                    if hook is not None:
                        y.register_hook(hook)
                    ((y + other) * w + w).sum().backward()
            return [[f.slug, line(f.culprit)] for f in trace.diagnose() if f.confidence != "hint"]
        def writes(gradient):
            gradient.mul_(2)
        answer([findings(None), findings(writes)])
    """)
    assert found[0] == []
    assert ["shared-gradient-written", "gradient.mul_(2)"] in found[1]


def test_threads_of_devices_keep_nothing_of_a_recording(recorded):
    assert recorded("""
        import gc
        from autogradviz.recorder.thread_state import ThreadState
        class Held:
            pass
        def record():
            w = torch.ones(3, device="sim", requires_grad=True)
            held = Held()
            def hook(gradient, held=held):
                return gradient
            with autogradviz.record(**OPTIONS) as trace:
                y = checkpoint(lambda x: x.sin(), w * 2, use_reentrant=False)
                y.register_hook(hook)
                y.sum().backward()
            return weakref.ref(held), weakref.ref(trace)
        found, counts = [], []
        for _ in range(4):
            found.append(record())
            # PyTorch's thread drops its last task when it begins another one.
            torch.ones(1, device="sim", requires_grad=True).sum().backward()
            gc.collect()
            counts.append(sum(type(each) is ThreadState for each in gc.get_objects()))
        answer([[held() is None, trace() is None] for held, trace in found]
               + [counts[0] == counts[-1]])
    """) == [[True, True]] * 4 + [True]


def test_certificate_verifies_what_it_verifies_on_the_cpu(tmp_path):
    found = run_on_device(
        """
        from torch import nn
        from torch.utils.checkpoint import checkpoint
        import autogradviz
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
            def forward(self, x):
                return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2
        def step(blocks, x, factor):
            y = checkpoint(blocks[0], x, use_reentrant=False)
            y = checkpoint(blocks[1], y, use_reentrant=True)
            y = Double.apply(y) * factor
            inner, = torch.autograd.grad(y.square().sum(), blocks[1].up.weight, create_graph=True)
            (y.sum() + inner.square().sum()).backward()
        found = {}
        for device in ("cpu", "sim"):
            torch.manual_seed(0)
            blocks = nn.ModuleList([Block(), Block()]).to(device)
            x = torch.randn(2, 8).to(device).requires_grad_()
            with autogradviz.record(verify=True) as trace:
                try:
                    step(blocks, x, torch.full((1,), 0.5, device=device))
                except RuntimeError as error:  # no double backward through a reentrant region
                    pass
                y = Double.apply(checkpoint(blocks[0], x, use_reentrant=False))
                checkpoint(blocks[1], y, use_reentrant=True).sum().backward()
            certificate = trace.certificate()
            found[device] = [dict(certificate.checked), len(certificate.failed),
                             sorted(str(each) for each in certificate.unverified)]
        answer(found)
    """,
        tmp_path,
    )
    assert found["sim"] == found["cpu"]
    assert found["sim"][0]["node"] > 10
    assert found["sim"][1] == 0


def test_nested_backward_is_drawn_inside_the_outer_one(recorded):
    assert recorded("""
        w = torch.ones(3, device="sim", requires_grad=True)
        with autogradviz.record(**OPTIONS) as trace:
            checkpoint(lambda x: x.sin() * w, w * 2, use_reentrant=True).sum().backward()
        bars = [span for span in trace.analysis.timeline.spans if span.kind == "backward"]
        answer([[bar.depth, bar.thread] for bar in bars])
    """) == [[0, 0], [1, 0]]
