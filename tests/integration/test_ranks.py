"""Distributed programs on two processes: unchanged results, and no false findings."""

import json

import pytest
from ranks import PROGRAMS, run_ranks

import autogradviz
from autogradviz.event_log import load, step_totals
from autogradviz.events import (
    DataParallelSeen,
    GradientBucketSeen,
    NormRead,
    OpCalled,
    ParameterSeen,
    ParametersResharded,
    ParametersUnsharded,
    TensorSaved,
    VersionRestored,
)

pytestmark = pytest.mark.one_in(4, reason="starts processes for each program", in_ci=1)

WIDTH = 16  # of the network in rank_programs.py


@pytest.fixture
def reports(native, tmp_path):
    """Run one program on two ranks; return what each reports."""

    def run(name, *recordings):
        ended = run_ranks(PROGRAMS, name, tmp_path, *recordings)
        assert [rank.code for rank in ended] == [0, 0], "\n".join(rank.err for rank in ended)
        return [json.loads(rank.out.splitlines()[-1]) for rank in ended]

    return run


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow(reason="another program of the same kind"))


@pytest.mark.one_in(2, reason="starts two processes for each program")
@pytest.mark.parametrize(
    "name",
    [
        "ddp", "fsdp2", "fsdp2_checkpoint", "fsdp1", "tensor_parallel", "pipeline_gpipe",
        slow("fsdp2_bfloat16"), slow("fsdp2_keeps_parameters"), slow("fsdp1_flat"),
        slow("sequence_parallel"), slow("pipeline_1f1b"), slow("asynchronous"),
        slow("ddp_variants"),
    ],
)  # fmt: skip
def test_two_ranks_train_the_same_without_findings_on_both_engines(reports, name):
    for report in reports(name, "python", "native", "without_ops"):
        for recording in report["recordings"].values():
            assert recording["digest"] == report["digest"]
            assert recording["failed"] == []
            assert recording["found"] == []


@pytest.mark.slow(reason="another program of the same kind")
def test_context_parallelism_raises_the_same_error_without_its_kernels(reports):
    for report in reports("context_parallel", "python", "native"):
        assert "_scaled_dot_product_flash_attention_for_cpu" in report["digest"]
        for recording in report["recordings"].values():
            assert recording["digest"] == report["digest"]
            assert recording["failed"] == []


@pytest.mark.parametrize("engine", ["python", "native"])
def test_worker_threads_of_collectives_are_not_recorded(reports, tmp_path, engine):
    for report in reports("fsdp2", engine):
        assert report["recordings"][engine]["threads"] == 1
    first, second = (autogradviz.load(tmp_path / f"{engine}-{rank}.agv") for rank in range(2))
    assert [op.op for op in first.log.of(OpCalled)] == [op.op for op in second.log.of(OpCalled)]
    assert [each.aspect for each in autogradviz.compare(first, second).differences] == []


def test_gathered_parameters_are_restored_on_both_engines(reports, tmp_path):
    reports("fsdp2_checkpoint", "python", "native")
    logs = [autogradviz.load(tmp_path / f"{engine}-0.agv").log for engine in ("python", "native")]
    counts = [len(log.of(VersionRestored)) for log in logs]
    assert counts[0] == counts[1] > 0
    gathers = [log.of(ParametersUnsharded) for log in logs]
    names = [[event.unsharded_parameters for event in each] for each in gathers]
    assert names[0] == names[1]
    block = 4 * (2 * WIDTH + 2 * WIDTH * WIDTH + 2 * WIDTH + 2 * WIDTH * WIDTH + WIDTH)  # bytes
    blocks = [each for each in gathers[0] if len(each.unsharded_parameters) == 6]
    assert {each.unsharded_nbytes for each in blocks} == {block}
    assert len(logs[0].of(ParametersResharded)) == len(gathers[0])


@pytest.mark.ci(reason="starts several processes")
@pytest.mark.parametrize("name", ["fsdp2_checkpoint", "tensor_parallel", slow("fsdp2_bfloat16")])
def test_norms_of_distributed_gradients_are_those_of_the_parts(reports, tmp_path, name):
    for rank, report in enumerate(reports(name, "python", "native", "written")):
        for file in ("python", "native", "steps"):
            totals = step_totals(load(tmp_path / f"{file}-{rank}.agv"))
            assert totals.are_parts
            assert totals.gradient_norms[-1] == pytest.approx(report["gradient_norm"], rel=1e-6)
            assert (totals.gradient_norms[0] is not None) == (file == "steps")


@pytest.mark.slow(reason="another program of the same kind")
def test_buckets_of_ddp_hold_each_parameter_once_on_both_engines(reports, tmp_path):
    reports("ddp", "python", "native")
    for engine in ("python", "native"):
        log = autogradviz.load(tmp_path / f"{engine}-0.agv").log
        (wrapper,) = log.of(DataParallelSeen)
        assert (wrapper.find_unused_parameters, wrapper.static_graph) == (False, False)
        buckets = log.of(GradientBucketSeen)
        assert [each.bucket for each in buckets] == list(range(len(buckets)))
        assert len(buckets) > 1
        names = [name for each in buckets for name in each.bucket_parameters]
        assert len(names) == len(set(names)) == 14
        assert names[0] == "module.head.bias"


@pytest.mark.ci(reason="starts ranks")
def test_shape_inference_of_a_pipeline_reads_no_loss(reports, tmp_path):
    reports("pipeline_gpipe", "python", "last_steps")
    last = autogradviz.load(tmp_path / "python-1.agv")
    losses = [event for event in last.log.of(NormRead) if event.place == "root"]
    microbatches, steps = 2, 3
    assert len(losses) == microbatches * steps
    # The flight recorder writes at the first loss that is not finite, and there was none.
    assert list(tmp_path.glob("written-*.agv")) == []


def test_unused_parameters_under_ddp_are_named_although_ddp_raises(reports, tmp_path):
    for rank, report in enumerate(reports("ddp_unused", "python", "native")):
        assert "Expected to have finished reduction" in report["digest"]
        for name, recording in report["recordings"].items():
            assert recording["digest"] == report["digest"]
            (finding,) = autogradviz.load(tmp_path / f"{name}-{rank}.agv").diagnose()
            assert (finding.slug, finding.confidence) == ("gradient-missing", "likely")
            assert f"experts.{1 - rank}.weight" in finding.explanation
            assert finding.culprit is None


def test_unused_parameters_are_named_although_an_assertion_about_gradients_fails(reports, tmp_path):
    for rank, report in enumerate(reports("ddp_asserts", "native")):
        assert report["digest"] == report["recordings"]["native"]["digest"] == "no gradient"
        finding = autogradviz.load(tmp_path / f"native-{rank}.agv").diagnose()[0]
        assert finding.slug == "gradient-missing"
        assert "spare.weight" in finding.title + finding.explanation


def test_unused_parameters_that_get_the_gradient_of_another_rank_are_no_finding(reports):
    for report in reports("ddp_finds_unused", "python", "native"):
        for recording in report["recordings"].values():
            assert recording["digest"] == report["digest"]
            assert recording["found"] == []


def test_equal_ranks_have_equal_values_apart_from_uninitialized_memory(reports, tmp_path):
    reports("equal_ranks", "fingerprints")
    first, second = (autogradviz.load(tmp_path / f"fingerprints-{rank}.agv") for rank in range(2))
    uninitialized = [op for op in first.log.of(OpCalled) if op.op.startswith("aten.empty")]
    assert uninitialized
    assert [each for each in autogradviz.compare(first, second) if each.aspect == "values"] == []


def test_distributed_tensors_have_their_shape_bytes_and_storage_on_both_engines(reports, tmp_path):
    reports("tensor_parallel", "python", "native")
    peaks = []
    for engine in ("python", "native"):
        analysis = autogradviz.load(tmp_path / f"{engine}-0.agv").analysis
        named = {event.parameter_name: event.tensor_id for event in analysis.log.of(ParameterSeen)}
        weight = analysis.tensors[named["Net.blocks.0.up.weight"]]
        half = 2 * WIDTH * WIDTH * 4 // 2
        assert (weight.shape, weight.dtype) == ((2 * WIDTH, WIDTH), "float32")
        assert (weight.nbytes, weight.storage_nbytes) == (half, half)
        saved = [analysis.tensors[event.tensor_id] for event in analysis.log.of(TensorSaved)]
        assert [tensor for tensor in saved if not tensor.nbytes or tensor.storage_id is None] == []
        peaks.append(max(analysis.memory.nbytes))
    # The up projection and gelu hold their results, half as wide as without parallelism.
    assert peaks[0] == peaks[1] > 4 * WIDTH * 4
