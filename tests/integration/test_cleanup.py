"""No patch stays installed, no object stays alive, and misuse raises a clear error."""

import gc
import textwrap
import threading
import weakref

import programs
import pytest
import torch
import torch.utils.checkpoint
from interpreters import run_forked
from patch_points import patch_points
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import autogradviz
from autogradviz.errors import AlreadyRecordingError, RecordingStateError, UnsupportedTorchError
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    ErrorRaised,
    NodeFinished,
    RecorderFailed,
    RecorderLimited,
    RecordingEnded,
)


@pytest.fixture(autouse=True)
def no_patch_stays_installed():
    before = patch_points()
    yield
    assert patch_points() == before


@pytest.mark.one_in(6, reason="collects garbage after each program", in_ci=2)
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_no_patch_stays_installed_and_no_result_stays_alive(name):
    before = patch_points()
    watched = []
    _survivors(programs.PROGRAMS[name], watched, recorded=False)  # fills the caches of PyTorch
    gc.collect()
    gc.disable()
    try:
        plain = _survivors(programs.PROGRAMS[name], watched, recorded=False)
        recorded = _survivors(programs.PROGRAMS[name], watched, recorded=True)
    finally:
        gc.enable()
    assert patch_points() == before
    assert recorded == plain


def _survivors(work, watched, *, recorded):
    """Return the number of result tensors of a program that stay alive without references."""
    torch.manual_seed(0)
    result = None
    try:
        if recorded:
            with autogradviz.record() as trace:
                result = work()
        else:
            result = work()
    except BaseException as error:
        # The frames of a traceback, including ours, hold the tensors of the user.
        error.__traceback__ = None
        del error
    references = [weakref.ref(tensor) for tensor in _tensors(result)]
    if recorded:
        watched.append(trace)  # the trace itself keeps nothing alive
    result = None
    return sum(reference() is not None for reference in references)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def test_graph_is_freed_with_its_tensors():
    class Witness(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, witness):
            ctx.witness = witness
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    class Object:
        pass

    witness = Object()
    alive = weakref.ref(witness)
    gc.collect()
    gc.disable()
    try:
        with autogradviz.record() as trace:
            loss = Witness.apply(torch.rand(3, requires_grad=True), witness).sum()
            loss.backward()
        del witness, loss
        assert alive() is None
        assert len(trace.log.of(BackwardStarted)) == 1
    finally:
        gc.enable()


def test_saves_of_a_graph_that_did_not_run_are_released():
    with autogradviz.record() as trace:
        kept = torch.rand(3, requires_grad=True).exp()
        torch.autograd.grad(kept.sum(), kept)  # walks the graph, runs no node of exp
        del kept
    saved = trace.saved_tensors()
    assert [(s.slot, s.released_seq is not None) for s in saved] == [("result", True)]


def test_nested_recording_is_refused():
    with autogradviz.record() as trace:
        with pytest.raises(AlreadyRecordingError, match="open already"), autogradviz.record():
            pass
        torch.rand(3, requires_grad=True).exp().sum().backward()
    assert len(trace.log.of(BackwardEnded)) == 1


def test_recording_can_be_used_only_once():
    recording = autogradviz.record()
    with recording:
        pass
    with pytest.raises(RecordingStateError, match="used before"):
        recording.__enter__()
    with pytest.raises(RecordingStateError, match="closed"):
        recording.__exit__(None, None, None)


def test_trace_cannot_be_read_while_recording():
    with autogradviz.record() as trace, pytest.raises(RecordingStateError, match="leave the with"):
        _ = trace.log
    assert trace.log.of(RecordingEnded)


def test_tensor_in_a_module_whose_node_cannot_be_read_is_left_alone():
    """Reading ``is_leaf`` of such a view runs view functions, and raises here."""
    net = nn.Linear(2, 1)
    base = torch.ones(2, requires_grad=True) * 1
    net.part, _ = base.unbind()
    with torch.no_grad():
        base.mul_(2)
    with autogradviz.record(net) as trace:
        net(torch.ones(1, 2)).sum().backward()
    assert trace.log.of(RecorderFailed) == ()
    with pytest.raises(RuntimeError, match="is a view"):
        _ = net.part.is_leaf


def test_model_must_be_a_module():
    with pytest.raises(TypeError, match="takes an nn.Module, not function"):
        autogradviz.record(lambda x: x)


def test_missing_hook_point_is_named(monkeypatch):
    monkeypatch.delattr(torch.autograd.graph, "_swap_with_cloned")
    with pytest.raises(UnsupportedTorchError, match=r"lacks autograd.graph._swap_with_cloned"):
        autogradviz.record().__enter__()


@pytest.mark.python_engine(reason="there is no dispatch mode")
def test_failed_start_removes_all_patches(monkeypatch):
    def refuse(self):
        raise MemoryError

    before = patch_points()
    monkeypatch.setattr("autogradviz.recorder.python_engine.dispatch_mode.OpMode.active", refuse)
    with pytest.raises(MemoryError):
        autogradviz.record().__enter__()
    assert patch_points() == before
    monkeypatch.undo()
    with autogradviz.record():
        pass


def test_user_error_keeps_its_type_and_is_recorded():
    class Mine(Exception):
        pass

    with pytest.raises(Mine, match="^x$"), autogradviz.record() as trace:
        raise Mine("x")
    (error,) = trace.log.of(ErrorRaised)
    assert error.type_name.endswith("Mine")
    assert error.message == "x"


def test_backwards_of_other_threads_are_recorded_completely():
    losses = [torch.rand(64, requires_grad=True).exp().sin().sum() for _ in range(8)]
    with autogradviz.record() as trace:
        threads = [threading.Thread(target=loss.backward) for loss in losses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    log = trace.log
    assert len(log.of(BackwardStarted)) == len(log.of(BackwardEnded)) == 8
    assert len(log.of(NodeFinished)) == 8 * 4
    assert [event.seq for event in log] == list(range(len(log)))
    assert log.of(RecorderFailed) == ()


def run_python(code):
    return run_forked("-c", textwrap.dedent(code))


@pytest.mark.slow(reason="builds a graph of 150,000 nodes")
@pytest.mark.parametrize(
    "chain",
    [
        "loop",
        pytest.param("stacked", marks=pytest.mark.slow(reason="keeps all 150,000 results")),
    ],
)
@pytest.mark.python_engine(reason="there is no depth limit")
def test_very_deep_graph_does_not_crash_the_process(chain):
    code = f"""
        import torch, autogradviz
        x = torch.ones(1, requires_grad=True)
        with autogradviz.record(stacks=False) as trace:
            hidden, seen = x * 1, []
            for _ in range(150_000):
                hidden = hidden + 1
                if {chain == "stacked"}:
                    seen.append(hidden)
            loss = torch.stack(seen).sum() if seen else hidden
            seen = None
            loss.backward()
        del hidden
        del loss
        (limited,) = trace.log.of(autogradviz.events.RecorderLimited)
        print(limited.message, float(x.grad))
    """
    ran = run_python(code)
    if chain == "stacked" and ran.returncode != 0:
        plain = run_python(_without_recording(code))
        assert ran.returncode == plain.returncode, ran.stderr
        return
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "could crash the process" in ran.stdout


def _without_recording(code):
    code = code.replace("with autogradviz.record(stacks=False) as trace:", "if True:")
    lines = [line for line in code.splitlines() if "limited" not in line]
    return "\n".join(lines)


@pytest.mark.slow(reason="graphs of a hundred thousand nodes")
def test_growing_chains_of_several_backwards_do_not_crash():
    ran = run_python("""
        import torch, autogradviz
        x = torch.ones(1, requires_grad=True)
        with autogradviz.record(stacks=False) as trace:
            loss = x * 1
            for step in range(8):
                for _ in range(9_000):
                    loss = loss + 1
                loss.backward(retain_graph=True)
        del loss
        print(float(x.grad))
    """)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split() == ["8.0"]


@pytest.mark.python_engine(reason="there is no depth limit")
def test_deep_graph_is_truncated_with_a_notice():
    with autogradviz.record(stacks=False) as trace:
        loss = torch.ones(1, requires_grad=True)
        for _ in range(16_000):
            loss = loss + 1
        loss.backward()
    assert len(trace.log.of(RecorderLimited)) == 1
    assert len(trace.analysis.graph.nodes) == 15_000


def test_module_setattr_is_patched_from_the_first_region():
    original = torch.nn.Module.__setattr__
    layer, x = torch.nn.Linear(2, 2), torch.rand(2, 2, requires_grad=True)
    with autogradviz.record(layer):
        layer(x).sum().backward()
        assert torch.nn.Module.__setattr__ is original
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
        assert torch.nn.Module.__setattr__ is not original
    assert torch.nn.Module.__setattr__ is original


def test_user_patch_of_a_watched_method_stays():
    original = torch.nn.Module.__setattr__
    layer, x = torch.nn.Linear(2, 2), torch.rand(2, 2, requires_grad=True)

    def mine(module, name, value):
        original(module, name, value)

    try:
        with autogradviz.record(layer):
            torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
            torch.nn.Module.__setattr__ = mine
        assert torch.nn.Module.__setattr__ is mine
    finally:
        torch.nn.Module.__setattr__ = original


@pytest.mark.ci(reason="starts the backend in a process")
def test_lazy_backend_results_are_unchanged_by_recording():
    program = """
        import contextlib, torch, torch._lazy.ts_backend, autogradviz
        torch._lazy.ts_backend.init()
        with RECORDING:
            x = torch.ones(3, 3).to("lazy").requires_grad_()
            y = x * 2
            rows = torch.tensor([0, 2], device="lazy")
            y[rows, rows] = 0
            y[1].add_(1)
            y.sum().backward()
        print(x.grad.cpu().tolist(), y.detach().cpu().tolist())
    """
    plain, recorded = (
        run_python(program.replace("RECORDING", recording))
        for recording in ("contextlib.nullcontext()", "autogradviz.record()")
    )
    assert plain.returncode == recorded.returncode == 0, recorded.stderr[-2000:]
    assert plain.stdout == recorded.stdout


REPLACED = (
    (nn.Module, "__call__"),
    (nn.Module, "register_full_backward_hook"),
    (saved_tensors_hooks, "__enter__"),
    (saved_tensors_hooks, "__exit__"),
    (torch.utils.checkpoint._checkpoint_hook, "__init__"),
    (torch.utils.checkpoint.CheckpointFunction, "forward"),
    (torch.utils.checkpoint._CachedTorchDispatchMode, "__torch_dispatch__"),
    (torch.autograd.function.FunctionCtx, "save_for_backward"),
    (torch.autograd.grad_mode._unsafe_preserve_version_counter, "__exit__"),
    (torch.utils.hooks.BackwardHook, "__init__"),
    (torch.Tensor, "register_hook"),
    (torch.set_grad_enabled, "__init__"),
    (torch.autocast, "__enter__"),
    (torch._C, "_increment_version"),
    (torch._C._autograd, "_saved_tensors_hooks_disable"),
    (torch.autograd.graph, "_engine_run_backward"),
)


def wrap(owner, name):
    """Wrap a function of PyTorch, as libraries do."""
    held = getattr(owner, name)

    def around(*args, **kwargs):
        return held(*args, **kwargs)

    is_static = isinstance(vars(owner)[name], staticmethod)
    setattr(owner, name, staticmethod(around) if is_static else around)
    return vars(owner)[name]


@pytest.mark.parametrize("place", REPLACED, ids=lambda place: f"{place[0].__name__}.{place[1]}")
def test_patch_installed_by_others_during_the_recording_stays(place):
    owner, name = place
    plain = vars(owner)[name]
    try:
        with autogradviz.record() as trace:
            others = wrap(*place)
            programs.PROGRAMS["checkpoint_blocks"]()
        assert vars(owner)[name] is others
        events = len(trace.log)
        for each in ("checkpoint_blocks", "checkpoint_reentrant", "tensor_hooks"):
            programs.PROGRAMS[each]()  # the wrapper still calls our function, which only forwards
        assert len(trace.log) == events
    finally:
        setattr(owner, name, plain)


@pytest.mark.parametrize("place", REPLACED, ids=lambda place: f"{place[0].__name__}.{place[1]}")
def test_patch_removed_by_others_during_the_recording_stays_removed(place):
    owner, name = place
    plain = vars(owner)[name]
    wrap(*place)
    try:
        with autogradviz.record():
            setattr(owner, name, plain)
            programs.PROGRAMS["checkpoint_blocks"]()
        assert vars(owner)[name] is plain
    finally:
        setattr(owner, name, plain)
