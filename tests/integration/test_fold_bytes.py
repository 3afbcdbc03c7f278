"""The ribbons of the fold, their waists and what is held, for every bug and many models."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import chosen_device
import pytest
from fold_bytes import differences
from interpreters import run_forked
from training_programs import PROGRAMS

import autogradviz

CASES = Path(__file__).parent.parent / "cases"
VARIANTS = sorted((CASES / "variants").glob("*.py"))
PARTS = 10

# Such a bug may leave settings of PyTorch changed.
CHILD = """
import contextlib, importlib.util, sys, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
import autogradviz
sys.path.insert(0, sys.argv[1])
from fold_bytes import differences
spec = importlib.util.spec_from_file_location("case", sys.argv[2])
module = importlib.util.module_from_spec(spec)
sys.modules["case"] = module
spec.loader.exec_module(module)
with contextlib.suppress(Exception), autogradviz.record() as trace:
    module.run()
print(*differences(trace), sep="\\n")
"""


@pytest.mark.one_in(3, reason="runs each bug", in_ci=1)
@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.py")))
def test_fold_of_a_bug_has_the_bytes_of_the_recording(case):
    chosen_device.skip_if_only_on_host(case)
    done = run_forked("-c", CHILD, Path(__file__).parent, CASES / f"{case}.py", timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(3, reason="runs each bug", in_ci=1)
@pytest.mark.parametrize("part", range(PARTS))
def test_folds_of_variants_of_bugs_have_the_bytes_of_their_recordings(part):
    found = {}
    for path in VARIANTS[part::PARTS]:
        spec = importlib.util.spec_from_file_location(f"variant_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with contextlib.suppress(Exception), autogradviz.record() as trace:
            module.run()
        found[path.stem] = differences(trace)
    assert len(found) >= len(VARIANTS) // PARTS
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_fold_of_a_model_has_the_bytes_of_the_recording(name):
    assert differences(PROGRAMS[name]()) == []
