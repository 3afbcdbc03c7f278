"""Faults inside the recorder: the step ends as without a recording, whatever raises, and where.

Each method of the recorder's classes and each event is a place for a fault, if it is called from
the recorder's own code while a step runs or while the recording ends. A fault is one of these at
one call, chosen by a seeded generator. ``AUTOGRADVIZ_TEST_FAULTS=2000`` sets their number, and
``AUTOGRADVIZ_TEST_FAULT_SEED`` the seed.
"""

import functools
import importlib
import inspect
import os
import pkgutil
import random
import sys
import warnings
from pathlib import Path
from types import FunctionType

import chosen_device
import programs
import pytest
import torch
from patch_points import all_patch_points
from test_results_unchanged import flat, same

import autogradviz
from autogradviz import recorder
from autogradviz.errors import AutogradvizWarning
from autogradviz.recorder.event_writer import EventSequence
from autogradviz.support import defer_and_redeliver_signals as defer_signals

FAULTS = int(os.environ.get("AUTOGRADVIZ_TEST_FAULTS", "48"))
SEED = int(os.environ.get("AUTOGRADVIZ_TEST_FAULT_SEED", "0"))
ERRORS = (ZeroDivisionError, MemoryError, torch.OutOfMemoryError, KeyboardInterrupt)
WORK = (
    "checkpoint_nested", "checkpoint_reentrant", "checkpoint_selective", "tensor_hooks",
    "full_backward_module_hooks", "multi_grad_hooks", "offload_to_cpu", "mutation_allowed",
    "custom_function_saved_twice", "accumulate_over_steps", "double_backward", "inference_mode",
    "inplace_on_saved_output_raises",
)  # fmt: skip
CONTENTS = {"fingerprints", "norms"}
OPTIONS = (
    {}, {}, {"fingerprints": True}, {"ops": False}, {"keep_steps": 1}, {"norms": True},
    {"memory": True},
)  # fmt: skip
# The native engine reads no contents of other devices.
NATIVE_OPTIONS = tuple(
    each for each in OPTIONS if chosen_device.ON_HOST or each.keys().isdisjoint(CONTENTS)
)
PYTHON_OPTIONS = (*OPTIONS, {"verify": True}, {"annotate_memory": True})

GUARDS = {"fail", "guarded", "always_guarded", "warn"}
"""Names in methods that handle the failures of others; they are no place for a fault."""

NOT_GUARDED = {
    "Session.fail", "Session.observes", "Failures.add",
    # They only add numbers of one object.
    "ProgramClock.begin_recorder_time", "ProgramClock.end_recorder_time", "ThreadClock.finish",
    "ThreadClock.settle", "ThreadClock._take",
    # They run the operator or the hook of the program.
    "OpMode._stop_after", "OpMode._run", "OpMode._run_call", "OpMode._run_verified",
    "OpMode._run_unrecorded",
    # The outermost parts of a recording; ``test_ends_of_recordings.py`` interrupts them.
    "Recorder.stop", "Recorder._close", "HookPoints.finish",
}  # fmt: skip
FOLDER = str(Path(recorder.__file__).parent) + os.sep


def classes():
    """Yield the classes that the recorder's modules define."""
    for found in pkgutil.walk_packages(recorder.__path__, "autogradviz.recorder."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == found.name:
                yield value


def guards(function):
    return not GUARDS.isdisjoint(inspect.unwrap(function).__code__.co_names)


class Injector:
    """Counts the calls at each place, and raises at one of them."""

    def __init__(self, place=None, nth=0, error=None):
        self.place, self.nth, self.error = place, nth, error
        self.calls, self.raised = {}, False
        self.is_armed = False

    def pass_through(self, place):
        if not self.is_armed:
            return
        caller = sys._getframe(2).f_code.co_filename
        if not caller.startswith(FOLDER):
            return
        self.calls[place] = count = self.calls.get(place, 0) + 1
        if (place, count) == (self.place, self.nth):
            self.raised = True
            raise self.error("injected")

    def install(self, monkeypatch):
        for owner in classes():
            for name, method in list(vars(owner).items()):
                place = f"{owner.__name__}.{name}"
                is_place = type(method) is FunctionType and not name.startswith("__")
                if is_place and place not in NOT_GUARDED and not guards(method):
                    monkeypatch.setattr(owner, name, self._around(method, place))
        original = EventSequence.emitter

        def emitter(sequence, log, kind):
            return self._around(original(sequence, log, kind), f"emit {kind.__name__}")

        monkeypatch.setattr(EventSequence, "emitter", emitter)

    def _around(self, function, place):
        @functools.wraps(function)
        def call(*args, **kwargs):
            self.pass_through(place)
            return function(*args, **kwargs)

        return call


def outcome(work):
    """Return the results of a program, or its exception."""
    torch.manual_seed(0)
    try:
        return flat(work())
    except Exception as error:
        return [type(error).__name__, str(error)]


@functools.cache
def plain(name):
    return outcome(programs.PROGRAMS[name])


def run(injector, name, engine, options):
    """Return the outcome of a recorded program, its trace, and the warnings of the recorder."""
    with pytest.MonkeyPatch.context() as patch:
        injector.install(patch)
        patch.setattr(defer_signals, "_interrupt_after", lambda *_: None)  # sends Ctrl-C later
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with autogradviz.record(engine=engine, **options) as trace:
                injector.is_armed = True
                found = outcome(programs.PROGRAMS[name])
            injector.is_armed = False
    return found, trace, [each for each in caught if each.category is AutogradvizWarning]


_reached = {}


def places(name, engine, options):
    key = (name, engine, str(options))
    if key not in _reached:
        injector = Injector()
        run(injector, name, engine, options)
        _reached[key] = injector.calls
    return _reached[key]


def inject(name, engine, options, chosen, error):
    """Run a program with one fault, and return whether it was reached, and what is wrong or ""."""
    calls = places(name, engine, options)
    place = chosen.choice(sorted(calls))
    nth = chosen.choice([1, calls[place], chosen.randint(1, calls[place])])
    injector = Injector(place, nth, error)
    fault = f"{error.__name__} at call {nth} of {place} in {name} with {options}: "
    try:
        found, trace, caught = run(injector, name, engine, options)
    except KeyboardInterrupt:
        if error is KeyboardInterrupt and injector.raised:
            return True, ""
        raise
    except BaseException as raised:
        return True, f"{fault}raised {raised!r}"
    problem = ""
    if not same(found, plain(name)):
        problem = f"{fault}another outcome {found!r:.200}"
    elif len(caught) > 1 or trace.log.problem is not None:
        problem = f"{fault}{len(caught)} warnings, {trace.log.problem}"
    return injector.raised, problem


@pytest.mark.parametrize("error", ERRORS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("engine", ["python", "native"])
def test_fault_anywhere_in_the_recorder_changes_no_step(engine, error, request):
    if engine == "native":
        request.getfixturevalue("native")
    chosen = random.Random(f"{SEED} {engine} {error.__name__}")
    before = all_patch_points()
    count, reached, problems = max(FAULTS // 8, 1), 0, []
    for _ in range(count):
        options = chosen.choice(NATIVE_OPTIONS if engine == "native" else PYTHON_OPTIONS)
        was_reached, problem = inject(chosen.choice(WORK), engine, options, chosen, error)
        assert all_patch_points() == before, problem
        reached += was_reached
        problems += [problem] if problem else []
    assert problems == []
    assert reached > 0.8 * count  # some calls depend on the garbage collector
