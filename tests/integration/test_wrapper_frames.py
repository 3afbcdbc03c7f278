"""Frames of our wrappers: those of module calls are PyTorch's, others are explained and skipped."""

import contextlib
import inspect
import pickle
import sys
import traceback
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import ModuleEntered
from autogradviz.recorder.backward import user_hooks

ENGINES = ["python", "native"]
FRAMES_OF_AN_OP = 20
"""The frames that an op needs below it with the Python engine."""


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


class Refusing(torch.nn.Module):
    def forward(self, x):
        raise ValueError(x)


def test_traceback_of_a_module_call_is_that_of_the_plain_program(engine):
    def text(module):
        try:
            module(1)
        except ValueError:
            return traceback.format_exc()

    nested = torch.nn.Sequential(Refusing())
    plain = text(nested)
    with autogradviz.record(engine=engine):
        assert text(nested) == plain


def test_module_call_has_the_name_and_the_signature_of_pytorch_and_can_be_pickled(engine):
    def describe():
        call = torch.nn.Module.__call__
        return (
            call.__name__, call.__qualname__, call.__module__, call.__doc__, call.__annotations__,
            call.__code__.co_name, call.__code__.co_filename, inspect.signature(call),
            pickle.dumps(call),
        )  # fmt: skip

    plain = describe()
    with autogradviz.record(engine=engine):
        assert describe() == plain


class Deep(torch.nn.Module):
    """Calls itself ``depth`` times."""

    def forward(self, x, depth):
        return self(x, depth - 1) if depth else (x * 2).sum()


def greatest_depth(module, **options):
    """Return the number of times that a module can call itself."""
    x = torch.ones(2, requires_grad=True)

    def works(depth):
        try:
            if not options:
                module(x, depth).backward()
            else:
                with warnings.catch_warnings(), autogradviz.record(**options):
                    warnings.simplefilter("ignore", autogradviz.errors.AutogradvizWarning)
                    module(x, depth).backward()
        except RecursionError:
            return False
        return True

    assert works(3)
    low, high = 3, sys.getrecursionlimit()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def test_modules_can_be_nested_as_deep_as_in_the_plain_program(engine):
    frames = 4  # of a call, one of which is C's
    lost = 0 if engine == "native" else FRAMES_OF_AN_OP // frames
    assert greatest_depth(Deep(), engine=engine) >= greatest_depth(Deep()) - lost


class OnlyCalls(torch.nn.Module):
    """Calls itself as often as it can, without any op."""

    def forward(self, depths, depth):
        depths.append(depth)
        self(depths, depth + 1)


def test_recursion_ends_at_the_same_depth_and_missing_calls_are_reported(engine):
    def run():
        depths = []
        with pytest.raises(RecursionError):
            OnlyCalls()(depths, 0)
        return depths

    plain = run()
    with (
        pytest.warns(autogradviz.errors.AutogradvizWarning, match="near the recursion limit"),
        autogradviz.record(engine=engine) as trace,
    ):
        assert run() == plain
    assert len(plain) - 3 <= len(trace.log.of(ModuleEntered)) <= len(plain) + 1


def test_wrapper_in_a_traceback_has_its_file_source_and_explanation():
    w = torch.ones(2)
    with autogradviz.record():
        try:
            w.register_hook(print)
        except RuntimeError as error:
            frames = traceback.extract_tb(error.__traceback__)
    (frame,) = [each for each in frames if "(autogradviz," in each.filename]
    path, explanation = frame.filename.split(" ", 1)
    assert path == user_hooks.__file__
    assert explanation == "(autogradviz, importlib._bootstrap)"
    assert frame.line == "handle = original(self, hook)"


class Warning3(torch.nn.Module):
    def forward(self, x):
        for level in range(1, 5):
            warnings.warn(f"look at caller {level}", stacklevel=level)
        return x


def test_warning_below_a_module_call_has_the_line_of_the_plain_program(engine):
    def lines():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Warning3()(1)
        return [(each.filename, each.lineno) for each in caught]

    plain = lines()
    with autogradviz.record(engine=engine):
        assert lines() == plain
    assert plain[3][0] == __file__


def test_another_function_in_the_place_of_module_call_is_called(engine, monkeypatch):
    original, seen = torch.nn.Module.__call__, []

    def call(self, *args, **kwargs):
        seen.append(type(self))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__call__", call)
    with autogradviz.record(engine=engine) as trace:
        Warning3()
        torch.nn.Sequential(torch.nn.ReLU())(torch.ones(2))
    assert seen == [torch.nn.Sequential, torch.nn.ReLU]
    assert len(trace.log.of(ModuleEntered)) == 2


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError(grad.shape) from error


def backward_of_function(x):
    RaisesInBackward.apply(x).sum().backward()


def hook_that_raises(x):
    def refuse(grad):
        raise ValueError(grad.shape)

    y = x * 2
    y.register_hook(refuse)
    y.sum().backward()


def module_hook_that_raises(x):
    module = torch.nn.Linear(3, 3)
    module.register_full_backward_hook(lambda *_: 1 / 0)
    module(x).sum().backward()


def hook_that_pytorch_refuses(x):
    x.detach().register_hook(print)


def operator_that_raises(x):
    (x + torch.ones(7)).sum().backward()


def written_in_place(x):
    y = x.sigmoid()
    y.mul_(2)
    y.sum().backward()


def recomputed_differently(x):
    calls = []

    def region(x):
        calls.append(1)
        return x.sin().cos() if len(calls) == 1 else x.sin()

    checkpoint(region, x, use_reentrant=False).sum().backward()


def raised_in_recomputation(x):
    calls = []

    def region(x):
        calls.append(1)
        return x.sin() / (2 - len(calls) if len(calls) == 1 else len(calls) // 0)

    checkpoint(region, x, use_reentrant=True).sum().backward()


RAISING = [
    backward_of_function, hook_that_raises, module_hook_that_raises, hook_that_pytorch_refuses,
    operator_that_raises, written_in_place, recomputed_differently, raised_in_recomputation,
]  # fmt: skip


def chain(error):
    """Return types, arguments and frames of an exception, its cause and its context."""
    if error is None:
        return None
    frames = [(each.name, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    return type(error), error.args, frames[1:], chain(error.__cause__), chain(error.__context__)


@pytest.mark.parametrize("raising", RAISING)
def test_exception_that_leaves_a_recording_has_the_traceback_of_the_plain_program(engine, raising):
    def run(*contexts):
        try:
            with contextlib.ExitStack() as stack:
                for each in contexts:
                    stack.enter_context(each)
                raising(torch.ones(2, 3, requires_grad=True))
        except (RuntimeError, ValueError, ZeroDivisionError) as error:
            return chain(error)

    plain = run()
    assert plain is not None
    assert run(autogradviz.record(engine=engine)) == plain
