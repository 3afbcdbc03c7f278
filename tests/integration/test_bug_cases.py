"""Real bugs, each in a separate interpreter: the first finding, and unchanged behavior."""

import ast
import json
from pathlib import Path

import chosen_device
import pytest
from interpreters import run_forked, run_new

CASES = Path(__file__).parent.parent / "cases"

# The slug of the first finding.
SLUGS = {
    "ck_01_kv_cache_grows": "checkpoint-different-metadata",
    "ck_04_batchnorm_twice": "checkpoint-effect-repeated",
    "ck_06_call_counter_branch": "checkpoint-different-number",
    "ck_10_arg_mutated_before_backward": "checkpoint-argument-mutated",
    "ck_11_python_random_layerdrop": "checkpoint-different-number",
    "ck_13_preserve_rng_false_dropout": "checkpoint-random-not-restored",
    "ck_18_forward_context_none": "checkpoint-state-changed",
    "ck_20_sdpa_backend_context": "checkpoint-different-metadata",
    "ck_23_eval_before_backward": "checkpoint-different-number",
    "ck_26_saved_tensors_twice": "saved-tensors-read-twice",
    "ck_28_reentrant_autograd_grad": "reentrant-needs-backward",
    "ck_30_cache_cleared_more_saved": "checkpoint-more-saved",
    "ck_36_weights_stepped_before_recompute": "checkpoint-captured-tensor-mutated",
    "ck_40_graph_exec_group_overlap": "exec-group-overlap",
    "ck_43_torch_function_mode": "checkpoint-different-metadata",
    "ip_01_exp_output_scaled": "saved-tensor-mutated",
    "ip_03_vae_step_before_discriminator": "saved-tensor-mutated",
    "ip_07_dp_table_row_assignment": "saved-tensor-mutated",
    "ip_10_data_mutation_silent": "silent-write",
    "ip_13_embedding_max_norm": "saved-tensor-mutated",
    "ip_16_vq_ema_codebook": "saved-tensor-mutated",
    "ip_19_mutation_ctx_exited": "mutation-context-left",
}

CHILD = """
import importlib.util, json, sys, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)

def load():
    spec = importlib.util.spec_from_file_location("case", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    sys.modules["case"] = module
    spec.loader.exec_module(module)
    return module

def call(work):
    try:
        work()
    except Exception as error:
        return error

plain = call(load().run)
import autogradviz
module = load()
try:
    with autogradviz.record(fingerprints=True) as trace:
        module.run()
    seen = None
except Exception as error:
    seen = error
with autogradviz.record(fingerprints=True) as clean:
    module.reference()
place = lambda location: location and [location.filename, location.lineno]
print(json.dumps({
    "plain": [type(plain).__name__, str(plain)[:150]],
    "recorded": [type(seen).__name__, str(seen)[:150]],
    "findings": [
        [f.slug, place(f.culprit), place(f.victim), len(f.explanation.splitlines()), f.confidence]
        for f in trace.diagnose()
    ],
    "fixes": [f.fix for f in trace.diagnose()],
    "notes": len(getattr(seen, "__notes__", [])),
    "alarms": [f.slug for f in clean.diagnose() if f.confidence != "hint"],
}))
"""


def examine(name, start=run_forked):
    """Run a case without and with recording; return its path and what ``CHILD`` prints."""
    path = CASES / f"{name}.py"
    done = start("-c", CHILD, path, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return path, json.loads(done.stdout.splitlines()[-1])


def marked(path, mark):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[str(path), n] for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]


@pytest.mark.one_in(2, reason="runs each bug", in_ci=1)
@pytest.mark.parametrize("name", SLUGS)
def test_first_finding_names_the_culprit_line_of_a_real_bug(name):
    chosen_device.skip_if_only_on_host(name)
    path, seen = examine(name)
    assert seen["recorded"] == seen["plain"]
    assert seen["alarms"] == []
    slug, culprit, victim, length, confidence = seen["findings"][0]
    assert slug == SLUGS[name]
    assert [culprit] == marked(path, "CULPRIT")
    assert victim in marked(path, "VICTIM")
    assert confidence in {"certain", "likely"}
    assert length <= 30
    assert [ast.parse(fix) for fix in seen["fixes"]]
    assert seen["notes"] == (seen["plain"][0] != "NoneType")


def test_optimizer_write_has_its_own_fix():
    _, seen = examine("ip_03_vae_step_before_discriminator")
    assert seen["findings"][0][4] == "likely"  # the forward could be moved as well
    assert "call step() only after every backward()" in seen["fixes"][0]


@pytest.mark.slow(reason="imports PyTorch in new interpreters")
@pytest.mark.parametrize("name", [next(iter(SLUGS)), "ip_03_vae_step_before_discriminator"])
def test_new_interpreter_gives_the_same_findings(name):
    assert examine(name, run_new) == examine(name)
