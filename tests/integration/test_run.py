"""``autogradviz run``: the program behaves as without it, and its trace is written."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import pytest
from interpreters import run_forked, run_new

import autogradviz
from autogradviz import event_log
from autogradviz.events import OpCalled, StepEnded

pytestmark = pytest.mark.one_in(3, reason="starts an interpreter for each script", in_ci=1)

SCRIPTS = {
    "ends": """
        import sys, atexit
        atexit.register(print, "at exit", flush=True)
        print(__name__, __file__, sys.argv, sys.path[0], __spec__, __package__)
        print(sys.modules["__main__"].__dict__ is globals(), sorted(globals()))
    """,
    "trains": """
        import torch
        x = torch.ones(3, requires_grad=True)
        x.exp().sum().backward()
        print(x.grad.tolist())
    """,
    "exits with 3": "import sys; print('out'); sys.exit(3)",
    "exits with a message": "import torch, sys; sys.exit('went wrong')",
    "exits without a code": "raise SystemExit",
    "exits with a list": "import sys; sys.exit(['a'])",
    "exits with a float zero": "import sys; sys.exit(0.0)",
    "closes standard error": """
        import sys, torch
        x = torch.ones(3, requires_grad=True)
        x.exp().sum().backward()
        sys.stderr.close()
        sys.exit(4)
    """,
    "has no standard error": """
        import sys, torch
        sys.stderr = None
        x = torch.ones(3, requires_grad=True)
        (x.exp().sum() / 0).backward()
        raise ValueError
    """,
    "prints text that is not ASCII": """
        import os, sys
        print(sys.stdout.errors, sys.stderr.errors)
        sys.stdout.reconfigure(encoding="ascii")
        print("\u00e9")
    """,
    "reads its annotations": "print(__annotations__ if '__annotations__' in globals() else 0)",
    "raises": """
        def inner():
            raise ValueError("no")
        try:
            {}["a"]
        except KeyError:
            inner()
    """,
    "raises in torch": """
        import torch
        torch.ones(2) @ torch.ones(3)
    """,
    "sets sys.excepthook": """
        import sys
        def hook(kind, value, traceback):
            print("hook", kind.__name__, value, traceback.tb_frame.f_code.co_name)
        sys.excepthook = hook
        raise RuntimeError("x")
    """,
    "syntax error": "def f(:\n    pass",
    "warns": """
        import warnings
        warnings.warn("careful")
    """,
    "thread continues after an error": """
        import threading, time
        def late():
            time.sleep(0.2)
            print("late", NAME)
        NAME = "still here"
        threading.Thread(target=late).start()
        raise OSError(2, "gone", "file.txt")
    """,
    "continues without the recorder": """
        import sys
        sys.modules["autogradviz.recorder"] = None  # as with an unsupported PyTorch
        import torch
        x = torch.ones(3, requires_grad=True)
        x.exp().sum().backward()
        print(x.grad.tolist())
    """,
    "pickles its own class": """
        import pickle
        class Thing: pass
        print(type(pickle.loads(pickle.dumps(Thing()))).__module__)
    """,
    "sets the environment before torch": """
        import os, sys
        print("torch" in sys.modules)
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch
        print(torch.get_num_threads(), type(torch.__loader__).__name__,
              vars(torch.__loader__).keys() - {"name", "path"}, len(sys.meta_path))
    """,
    "forks": """
        import os, sys, torch
        child = os.fork()
        if child == 0:
            torch.ones(2).add(1)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """,
    "forks and exits": """
        import os, sys, torch
        child = os.fork()
        if child == 0:
            sys.exit(5)
        print(os.waitpid(child, 0)[1] >> 8)
        sys.exit(1)
    """,
}

FAILING = """
import torch
def loss(x):
    y = x.exp()
    y.add_(1)
    return y.sum()
loss(torch.ones(3, requires_grad=True)).backward()
"""


NEW_ONLY = {
    "ends",
    "continues without the recorder",
    "reads its annotations",
    "sets the environment before torch",
}
"""Scripts about the start of an interpreter and about the import of PyTorch."""


def environment():
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(autogradviz.__file__))])
    return {**os.environ, "PYTHONPATH": paths}


def start_new(*arguments, cwd):
    """Run ``python`` in a new interpreter."""
    return run_new(*arguments, cwd=cwd, env=environment(), timeout=100)


def start_forked(*arguments, cwd):
    """Run ``python`` in an interpreter that has imported PyTorch."""
    return run_forked(*arguments, cwd=cwd, env=environment(), timeout=100)


run_in_new = partial(start_new, "-m", "autogradviz", "run")


@pytest.fixture
def start():
    """Run ``python`` with some arguments in a directory; NEW_ONLY runs in new interpreters."""
    return start_forked


@pytest.fixture
def run(start):
    """Run ``autogradviz run`` with some arguments in a directory."""
    return partial(start, "-m", "autogradviz", "run")


NOTE = re.compile(r"^autogradviz: .*\n\n(.*\n)*?(?=autogradviz: )", re.MULTILINE)
"""The first finding, which Python prints below an exception."""


def own_lines(text):
    """Return the lines that a program prints by itself."""
    return [
        line for line in NOTE.sub("", text).splitlines() if not line.startswith("autogradviz: ")
    ]


@pytest.mark.one_in(6, reason="starts two interpreters for each script", in_ci=3)
@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - NEW_ONLY))
def test_script_behaves_as_without_autogradviz(tmp_path, name, start, run):
    check_script(tmp_path, name, start, run)


@pytest.mark.one_in(2, reason="starts two interpreters for each script")
@pytest.mark.parametrize("name", sorted(NEW_ONLY))
def test_script_in_a_new_interpreter_behaves_as_without_autogradviz(tmp_path, name):
    check_script(tmp_path, name, start_new, run_in_new)


def check_script(tmp_path, name, start, run):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPTS[name]))
    plain = start("script.py", "--a", "-o", "b c", cwd=tmp_path)
    seen = run("-q", "script.py", "--a", "-o", "b c", cwd=tmp_path)
    assert (seen.returncode, seen.stdout) == (plain.returncode, plain.stdout)
    assert own_lines(seen.stderr) == plain.stderr.splitlines()


@pytest.mark.parametrize("module", ["package", "package.part"])
def test_module_behaves_as_without_autogradviz(tmp_path, module, start, run):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import sys; print('package', sys.argv)")
    code = (
        "import sys; from package import part\n"
        "print(__name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0])\n"
    )
    (tmp_path / "package" / "__main__.py").write_text(code)
    (tmp_path / "package" / "part.py").write_text("print(__name__, __package__)")
    plain = start("-m", module, "-m", "x", cwd=tmp_path)
    seen = run("-q", "-m", module, "-m", "x", cwd=tmp_path)
    assert (seen.returncode, seen.stdout) == (plain.returncode, plain.stdout)
    assert plain.stdout.count("\n") > 1
    assert own_lines(seen.stderr) == plain.stderr.splitlines()


def test_folder_with_a_main_module_is_run(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(
        "import sys; print(__name__, sys.argv, sys.path[0])"
    )
    assert (
        run_in_new("-q", "app", "1", cwd=tmp_path).stdout
        == start_new("app", "1", cwd=tmp_path).stdout
    )


def test_program_after_two_dashes_is_run(tmp_path):
    (tmp_path / "says.py").write_text("import sys; print(sys.argv)")
    seen = run_in_new("-q", "--", "says.py", "--", "-q", cwd=tmp_path)
    assert seen.stdout == start_new("says.py", "--", "-q", cwd=tmp_path).stdout


def test_failing_script_is_explained_and_its_trace_is_written(tmp_path):
    (tmp_path / "fails.py").write_text(FAILING)
    plain = start_new("fails.py", cwd=tmp_path)
    (tmp_path / "fails.agv").write_text("of the user")
    seen = run_in_new("fails.py", cwd=tmp_path)
    assert seen.returncode == plain.returncode == 1
    assert seen.stderr.startswith(plain.stderr)
    assert "autogradviz: y was written at line 5 after line 4 saved it" in seen.stderr
    assert "y = y.add(1)" in seen.stderr
    assert "autogradviz: fails-2.agv (" in seen.stderr
    assert (tmp_path / "fails.agv").read_text() == "of the user"
    (finding,) = autogradviz.load(tmp_path / "fails-2.agv").diagnose()
    assert finding.culprit.lineno == 5
    frames = autogradviz.load(tmp_path / "fails-2.agv").analysis.stack(
        autogradviz.load(tmp_path / "fails-2.agv").log.of(OpCalled)[0].stack_id
    )
    assert {frame.filename for frame in frames if not frame.filename.startswith(sys.prefix)} <= {
        str(tmp_path / "fails.py"),
        os.path.join(os.path.dirname(autogradviz.__file__), "cli", "run_as_main.py"),
    }


@pytest.mark.slow(reason="starts several interpreters")
def test_script_that_searches_torch_before_importing_it_is_recorded(tmp_path):
    look = "import importlib.util, sys; print(importlib.util.find_spec('torch').name)\n"
    output = "print(vars(sys.modules['torch'].__loader__).keys(), len(sys.meta_path))\n"
    (tmp_path / "looks.py").write_text(2 * look + FAILING.replace("def loss", output + "def loss"))
    plain, ran = start_new("looks.py", cwd=tmp_path), run_in_new("looks.py", cwd=tmp_path)
    assert (ran.stdout, ran.returncode) == (plain.stdout, plain.returncode)
    assert "autogradviz: y was written at line" in ran.stderr
    assert autogradviz.load(tmp_path / "looks.agv").log.of(OpCalled)


@pytest.mark.parametrize("options", [[], ["-o", "fails.agv"], ["--within", "*"], ["--all"]])
def test_script_may_change_its_folder(tmp_path, options, start, run):
    (tmp_path / "sub").mkdir()
    (tmp_path / "fails.py").write_text("import os; os.chdir('sub')" + FAILING)
    plain, seen = start("fails.py", cwd=tmp_path), run("-q", *options, "fails.py", cwd=tmp_path)
    assert (seen.returncode, seen.stdout) == (plain.returncode, plain.stdout)
    assert seen.stderr.startswith(plain.stderr)
    assert "autogradviz: fails.agv (" in seen.stderr
    assert autogradviz.load(tmp_path / "fails.agv").diagnose()
    assert not list((tmp_path / "sub").iterdir())


@pytest.mark.slow(reason="starts several interpreters")
def test_parallel_programs_write_different_traces(tmp_path):
    """For example the ranks of a distributed training that all fail."""
    taken = "__import__('pathlib').Path('fails.agv').write_text('of another process')\n"
    (tmp_path / "fails.py").write_text(FAILING.replace("loss(torch", taken + "loss(torch"))
    seen = run_in_new("-q", "fails.py", cwd=tmp_path)
    assert (tmp_path / "fails.agv").read_text() == "of another process"
    assert "autogradviz: fails-2.agv (" in seen.stderr
    assert autogradviz.load(tmp_path / "fails-2.agv").diagnose()
    (tmp_path / "fails-2.agv").unlink()
    (tmp_path / "fails.agv").unlink()
    (tmp_path / "fails.py").write_text(taken + FAILING)
    run_in_new("-q", "--all", "fails.py", cwd=tmp_path)
    assert (tmp_path / "fails.agv").read_text() == "of another process"
    assert autogradviz.load(tmp_path / "fails-2.agv").diagnose()


def test_run_ends_with_what_it_found_and_where_the_trace_is(tmp_path, run):
    (tmp_path / "trains.py").write_text(textwrap.dedent(SCRIPTS["trains"]))
    *_, result, place = run("trains.py", cwd=tmp_path).stderr.splitlines()
    assert result == "autogradviz: no call of optimizer.step(), nothing found"
    assert place.startswith("autogradviz: trains.agv (")
    assert place.endswith("; open it with: autogradviz html trains.agv")
    assert autogradviz.load(tmp_path / "trains.agv").log.problem is None
    (tmp_path / "train.py").write_text(TRAINING)
    *_, result, place = run("train.py", cwd=tmp_path).stderr.splitlines()
    assert result == "autogradviz: 12 calls of optimizer.step(), nothing found in the last 3"
    assert place.startswith("autogradviz: train.agv (")


def test_run_counts_steps_of_optimizers_and_not_backwards_before_the_first(tmp_path, run):
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for number in range(1, 9):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    if number % 4 == 0:\n"
        "        optimizer.step()\n"
    )
    *_, result, _ = run("train.py", cwd=tmp_path).stderr.splitlines()
    assert result == "autogradviz: 2 calls of optimizer.step(), 1 hint: gradients-discarded"


def test_run_that_finds_nothing_names_the_audit_of_lines_that_drop_gradients(tmp_path, run):
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)\n"
        "own = torch.optim.SGD(second.parameters(), 0.1)\n"
        "both = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)\n"
        "for _ in range(4):\n"
        "    h = first(torch.rand(2, 4))\n"
        "    second(h).sum().backward(retain_graph=True)\n"
        "    own.step()\n"
        "    both.zero_grad()\n"
        "    h.square().sum().backward()\n"
        "    both.step()\n"
        "    both.zero_grad()\n"
    )
    *_, result, _ = run("--all", "train.py", cwd=tmp_path).stderr.splitlines()
    assert result.endswith("nothing found; autogradviz audit train.agv lists 1 line"), result


@pytest.mark.parametrize("second_backward", [True, False])
def test_run_counts_the_same_calls_of_several_optimizers_in_all_modes(
    tmp_path, run, second_backward
):
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "models = [torch.nn.Linear(2, 1) for _ in range(2)]\n"
        "first, second = [torch.optim.SGD(each.parameters(), 0.1) for each in models]\n"
        "for number in range(25):\n"
        "    first.zero_grad()\n"
        "    second.zero_grad()\n"
        "    losses = [each(torch.ones(1, 2)).sum() for each in models]\n"
        "    losses[0].backward()\n"
        f"    {'first.step()' if second_backward else 'pass'}\n"
        "    losses[1].backward()\n"
        f"    {'pass' if second_backward else 'first.step()'}\n"
        "    second.step()\n"
    )
    *progress, result, _ = run("train.py", cwd=tmp_path).stderr.splitlines()
    kept = 6 if second_backward else 7  # the first one after the end of a dropped step
    assert result == f"autogradviz: 50 calls of optimizer.step(), nothing found in the last {kept}"
    assert [line.split(" of")[0] for line in progress] == [
        "autogradviz: 1 call",
        f"autogradviz: {10 if second_backward else 11} calls",
    ]
    *_, result, _ = run("--all", "train.py", cwd=tmp_path).stderr.splitlines()
    assert result == "autogradviz: 50 calls of optimizer.step(), nothing found"


def test_program_that_does_not_start_is_reported_and_a_trace_is_not_run(tmp_path):
    (tmp_path / "wrong.py").write_text("import torch\nx = (1\n")
    done = run_in_new("wrong.py", cwd=tmp_path)
    assert done.stderr.endswith("autogradviz: nothing was recorded: the program did not start\n")
    (tmp_path / "train.agv").touch()
    done = run_in_new("train.agv", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "autogradviz: train.agv is a trace; open it with: autogradviz html train.agv\n"
    )


def test_quiet_run_without_finding_prints_nothing_and_writes_its_trace(tmp_path, run):
    (tmp_path / "trains.py").write_text(textwrap.dedent(SCRIPTS["trains"]))
    assert run("-q", "trains.py", cwd=tmp_path).stderr == ""
    assert autogradviz.load(tmp_path / "trains.agv").log.problem is None


def test_failing_run_ends_with_its_finding_and_its_trace(tmp_path, run):
    (tmp_path / "fails.py").write_text(FAILING)
    *_, result, place = run("fails.py", cwd=tmp_path).stderr.splitlines()
    assert result == "autogradviz: no call of optimizer.step(), 1 finding: saved-tensor-mutated"
    assert place.startswith("autogradviz: fails.agv (")


CUTS_A_WAY = """\
import torch
torch.manual_seed(0)
body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for step in range(3):
    hidden = body(torch.rand(4, 3)).tanh()
    kept = body(torch.rand(4, 3)).detach()
    loss = (head(hidden * kept.exp()) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("options", [[], ["-q"]])
def test_finding_that_a_comment_allows_is_one_sentence(tmp_path, run, options):
    script = tmp_path / "cuts.py"
    script.write_text(CUTS_A_WAY)
    (*_, result, _) = run(*options, "cuts.py", cwd=tmp_path).stderr.splitlines()
    assert result == "autogradviz: 3 calls of optimizer.step(), 1 hint: gradient-cut"
    allowed = "detach()  # autogradviz: allow(gradient-cut): a weight"
    script.write_text(CUTS_A_WAY.replace("detach()", allowed))
    lines = run(*options, "cuts.py", cwd=tmp_path).stderr.splitlines()
    assert lines[-2] == (
        "autogradviz: 3 calls of optimizer.step(), nothing else found; gradient-cut is allowed by "
        "the comment on line 7 of cuts.py"
    )
    assert not any("culprit" in line or "is cut" in line for line in lines)


def test_program_without_operators_writes_no_trace(tmp_path, run):
    (tmp_path / "imports.py").write_text("import torch")
    done = run("imports.py", cwd=tmp_path)
    assert done.stderr == (
        "autogradviz: no backward, nothing found\n"
        "autogradviz: no trace was written: PyTorch ran no operator\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["imports.py"]


def test_script_that_imports_relatively_gets_the_command_that_runs_it(tmp_path, run):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "train.py").write_text("import torch\nfrom . import nothing")
    assert run("package/train.py", cwd=tmp_path).stderr.splitlines()[-2:] == [
        "autogradviz: package/train.py is a part of a package; run it as: "
        "autogradviz run -m package.train",
        "autogradviz: no trace was written: PyTorch ran no operator",
    ]


def test_script_that_ends_before_any_operator_says_so_once(tmp_path, run):
    (tmp_path / "wants.py").write_text("import sys, torch\nsys.exit(2)")
    done = run("wants.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "autogradviz: no trace was written: PyTorch ran no operator\n"


@pytest.mark.parametrize("options", [[], ["--all"], ["--within", "*"]])
def test_next_run_of_a_script_replaces_its_trace(tmp_path, run, options):
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "train.agv").write_text("of the user")
    for steps in (12, 2):
        (tmp_path / "train.py").write_text(TRAINING.replace("(12)", f"({steps})"))
        assert "autogradviz: train-2.agv (" in run(*options, "train.py", cwd=tmp_path).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "train-2.agv", "train.agv", "train.py",
    ]  # fmt: skip
    assert (tmp_path / "train.agv").read_text() == "of the user"
    steps = autogradviz.load(tmp_path / "train-2.agv").log.of(StepEnded)
    assert [event.step for event in steps] == [0, 1]


def test_incomplete_trace_is_not_replaced(tmp_path, run):
    """It may be that of a recording that still runs, or was killed."""
    (tmp_path / "train.py").write_text(TRAINING)
    run("-q", "--all", "train.py", cwd=tmp_path)
    part = (tmp_path / "train.agv").read_bytes()[:-20]
    (tmp_path / "train.agv").write_bytes(part)
    run("-q", "train.py", cwd=tmp_path)
    assert (tmp_path / "train.agv").read_bytes() == part
    assert autogradviz.load(tmp_path / "train-2.agv").log.problem is None


TRAINING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Tanh()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(model[0].weight.tolist())
"""


@pytest.mark.parametrize(
    ("options", "steps", "events_reported"),
    [
        (["-o", "x.agv"], [9, 10, 11], True),
        (["-o", "x.agv", "--keep-steps", "1"], [11], True),
        (["--all"], list(range(12)), True),
        (["-o", "x.agv", "--steps", "2:4"], [0, 1], True),
        (["-o", "x.agv", "--steps", ":1"], [0], True),
        (["-q", "-o", "x.agv", "--steps", "11:"], [0], False),
    ],
)
def test_only_selected_steps_are_recorded(tmp_path, options, steps, events_reported, start, run):
    (tmp_path / "train.py").write_text(TRAINING)
    done = run(*options, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, start("train.py", cwd=tmp_path).stdout)
    trace = autogradviz.load(tmp_path / ("train.agv" if options == ["--all"] else "x.agv"))
    assert [event.step for event in trace.log.of(StepEnded)] == steps
    assert trace.log.problem is None
    assert trace.diagnose() == []
    assert ("autogradviz: 1 call of optimizer.step(), " in done.stderr) == events_reported


def test_missing_steps_are_reported(tmp_path, run):
    (tmp_path / "train.py").write_text(TRAINING)
    done = run("-q", "--steps", "40:50", "train.py", cwd=tmp_path)
    assert done.stderr == "autogradviz: nothing was recorded: only 12 steps were made\n"


def test_only_selected_modules_are_written(tmp_path, run):
    (tmp_path / "train.py").write_text(TRAINING)
    run("-q", "-o", "x.agv", "--within", "model.1", "train.py", cwd=tmp_path)
    trace = autogradviz.load(tmp_path / "x.agv")
    assert trace.log.problem is None
    assert {op.module for op in trace.analysis.ops if op.phase == "forward"} == {"model.1.0"}
    assert {node.name for node in trace.analysis.graph.nodes.values()} == {"TanhBackward0"}
    assert "modules named 'model.1'" in trace.analysis.notices[-1].message


OWN = """
import sys, torch, autogradviz
from autogradviz.events import OpCalled
from torch.utils.flop_counter import FlopCounterMode

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())

def record():
    with autogradviz.record(model) as trace:
        model(torch.randn(3, 2)).exp().sum().backward()
        if "fails" in sys.argv:
            y = model(torch.randn(3, 2)).exp()
            loss = y.sum()
            y.add_(1)
            loss.backward()
    return trace

if "in a mode" in sys.argv:
    with FlopCounterMode(display=False) as counter:
        try:
            record()
        except autogradviz.errors.AlreadyRecordingError:
            print("refused", counter.get_total_flops())
    model(torch.randn(3, 2))
    print(counter.get_total_flops())
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(3, 2))
    print(counter.get_total_flops())
else:
    trace = record()
    names = [op.op for op in trace.log.of(OpCalled)]
    print(len(trace.diagnose()), names.count("aten.exp.default"))
    model(torch.randn(3, 2)).log().sum()
"""


def test_recording_of_the_script_suspends_ours(tmp_path, start, run):
    (tmp_path / "own.py").write_text(OWN)
    plain = start("own.py", cwd=tmp_path)
    done = run("-q", "-o", "x.agv", "own.py", cwd=tmp_path)
    assert done.stdout == plain.stdout == "0 1\n"
    assert "autogradviz: suspended during the program's own recordings (1)\n" in done.stderr
    names = {op.op for op in autogradviz.load(tmp_path / "x.agv").log.of(OpCalled)}
    assert "aten.log.default" in names
    assert "aten.exp.default" not in names


def test_failed_recording_of_the_script_is_written_instead_of_ours(tmp_path, run):
    (tmp_path / "own.py").write_text(OWN)
    done = run("-q", "own.py", "fails", cwd=tmp_path)
    assert (
        done.returncode,
        done.stderr.count("y was written at line 14 after line 12 saved it"),
    ) == (1, 1)
    (finding,) = autogradviz.load(tmp_path / "own.agv").diagnose()
    assert finding.slug == "saved-tensor-mutated"


@pytest.mark.python_engine(reason="there is no dispatch mode")
def test_recording_inside_a_mode_of_the_script_is_refused(tmp_path, run):
    (tmp_path / "own.py").write_text(OWN)
    done = run("-q", "-o", "x.agv", "own.py", "in a mode", cwd=tmp_path)
    assert done.stdout == "refused 0\n0\n24\n"
    assert autogradviz.load(tmp_path / "x.agv").log.problem is None


def test_non_finite_loss_writes_a_trace_of_a_successful_run(tmp_path, run):
    (tmp_path / "train.py").write_text(TRAINING.replace(".sum()", ".log().sum()"))
    done = run("-q", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "the loss of step 0 is not finite; the last steps are in " in done.stderr
    assert "autogradviz: train.agv (" in done.stderr
    trace = autogradviz.load(tmp_path / "train.agv")
    assert [event.step for event in trace.log.of(StepEnded)] == [0]
    assert [finding.slug for finding in trace.diagnose()] == ["not-finite"]


FIRST_NAN_IN_BACKWARD = """
import torch
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(12):
    loss = (weight * weight).sqrt().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_findings_of_a_non_finite_loss_are_those_of_the_file(tmp_path, run):
    """The first loss is finite, its gradient is not; the file is written at the second step."""
    (tmp_path / "train.py").write_text(FIRST_NAN_IN_BACKWARD)
    done = run("train.py", cwd=tmp_path)
    trace = autogradviz.load(tmp_path / "train.agv")
    assert [event.step for event in trace.log.of(StepEnded)] == [0, 1]
    (finding,) = trace.diagnose()
    printed = " ".join(done.stderr.split())
    first, *_, where_it_was_read, _ = finding.explanation.splitlines()
    assert finding.title == "sqrt gave NaN or infinity: its derivative is infinite at 0"
    assert where_it_was_read.strip() == "loss.backward()"
    assert first in printed
    assert where_it_was_read.strip() in printed
    assert "the forward gave the first one" not in printed
    *_, result, place = done.stderr.splitlines()
    assert result == "autogradviz: 12 calls of optimizer.step(), 1 hint in steps 0 to 1: not-finite"
    assert place.startswith("autogradviz: train.agv (")
    assert ", steps 0 to 1); open it with: " in place


def test_finding_of_an_exception_after_a_non_finite_loss_is_printed_with_those_of_the_file(
    tmp_path, run
):
    (tmp_path / "train.py").write_text(FIRST_NAN_IN_BACKWARD + "loss.backward()\n")
    done = run("train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "graph-freed" in done.stderr or "backward-twice" in done.stderr
    assert "autogradviz: found in train.agv\nsqrt gave NaN or infinity: " in done.stderr
    assert "the forward gave the first one" not in done.stderr
    assert ", steps 0 to 1); open it with: " in done.stderr.splitlines()[-1]


def test_existing_output_file_is_not_overwritten(tmp_path):
    (tmp_path / "trains.py").write_text("print('ran')")
    done = run_in_new("-o", "trains.py", "trains.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "autogradviz: trains.py exists already, and is kept; name another file. [file-exists]\n"
    )


def test_overwrite_option_replaces_an_existing_file(tmp_path, run):
    (tmp_path / "trains.py").write_text(textwrap.dedent(SCRIPTS["trains"]))
    (tmp_path / "x.agv").write_text("old")
    done = run("-q", "-o", "x.agv", "--overwrite", "trains.py", cwd=tmp_path)
    assert done.returncode == 0
    assert autogradviz.load(tmp_path / "x.agv").log.problem is None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["absent.py"], "absent.py: No such file or directory [program-not-found]"),
        (["-m", "absent"], "no module named absent that could be run [program-not-found]"),
        ([], "name a script, or -m and a module"),
        (["-m"], "name a script, or -m and a module"),
    ],
)
def test_invalid_program_exits_with_2(tmp_path, words, complaint, run):
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_interrupted_script_ends_as_without_autogradviz(tmp_path):
    (tmp_path / "waits.py").write_text(
        "import signal, time, torch\n"  # ignored in background jobs of a shell
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "x = torch.ones(2, requires_grad=True).exp()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    ends = []
    for command in (["waits.py"], ["-m", "autogradviz", "run", "-o", "w.agv", "waits.py"]):
        child = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout.readline() == "ready\n"
        time.sleep(1)  # wait until the child sleeps
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        ends.append((child.returncode, own_lines(errors)))
    first, *_, result, place = errors.splitlines()
    assert first == "autogradviz: interrupted; writing w.agv ..."
    assert result == "autogradviz: no backward, nothing found"
    assert place.startswith("autogradviz: w.agv (")
    assert ends[0] == ends[1]
    assert event_log.load(tmp_path / "w.agv").problem is None
